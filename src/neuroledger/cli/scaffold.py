"""New spec files that pass `check` as they are, with a comment on each field."""

from __future__ import annotations

from pathlib import Path

from neuroledger.errors import RequestError
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.load import read_spec
from neuroledger.store.files import write_text

__all__ = ["scaffold"]

TEMPLATES = {
    "dataset": """\
title: What was recorded, from whom, of what
license: LicenseRef-unstated  # SPDX id under which the data may be used, such as CC-BY-4.0
access: private               # or public; private: scores may be shown, values may not
cite: []                      # keys of specs/references.bib
unavailable: not packaged yet # `neuroledger package` replaces this line by `files`, `reader` and `expectations`
""",
    "metric": """\
title: What it compares
compare: {name: regression, estimator: {name: ridge, alpha: 1}}  # a registered metric and its parameters
splits: {name: shuffle, folds: 10, train: 0.9, by: stimulus_id}    # remove where nothing is fitted
aggregate: [{over: neuroid, with: median}, {over: split, with: mean}]
error: {over: split, with: sem}
scale: correlation            # what the number is; decides how a ceiling normalises it
direction: higher
cite: []
""",
    "ceiling": """\
title: What limits a score
compare: {name: internal_consistency}    # a registered ceiling and its parameters
splits: {name: shuffle, folds: 10, train: 0.5, by: repetition, unique: true}
aggregate: [{over: neuroid, with: median}, {over: split, with: mean}]
error: {over: split, with: sem}
scale: reliability
direction: higher
cite: []
""",
    "benchmark": """\
title: Which data, compared how
parent: V4                    # its place in the hierarchy
dataset: DATASET              # specs/datasets/
select: {region: V4}          # coordinates of the assembly
paradigm: {name: recording, region: V4, visual_degrees: 8}
metric: ridge                 # `neuroledger list metrics`, or {name: ridge, splits: {folds: 5}}
ceiling: internal_consistency # `neuroledger list ceilings`
controls: {negative: [noise]} # models that must stay at the floor; positive: those that must reach the ceiling
cite: []
""",
    "model": """\
title: What it is
builder: {name: pixels, size: 16}    # a registered builder and its parameters
pretraining: []                      # data sets that it was trained on
""",
    "suite": """\
title: What these benchmarks have in common
benchmarks: [BENCHMARK]
models: [pixels16, noise]
""",
}

# The `modality` of data sets whose benchmarks decode, and how such a benchmark begins.
SIGNALS = ("eeg", "meg", "ieeg", "emg", "fmri")
DECODING = """\
title: What is read out of whose signals
parent: decoding
dataset: DATASET              # specs/datasets/
paradigm: {name: decoding, target: label, splits: {name: cross_subject}}  # docs/decoding.md: what is held out
metric: balanced_accuracy     # `neuroledger list metrics`; decoding_pearson_r for numbers, top5_retrieval for embeddings
floor: {dummy: dummy}         # 0 is the dummy, 1 is perfect
controls: {positive: [planted_lda], negative: [shuffled_lda], floor_at_most: 0.35}
cite: []
tags: [decoding]
"""


def scaffold(catalog: Catalog, kind: str, id: str) -> Path:
    """Write ``specs/<kind>s/<id>.yaml`` and return its path.

    Raises
    ------
    RequestError
        There is such a file already, the id cannot be a file name, or the repository has nothing yet that a spec of this
        kind refers to.
    SpecError
        The id is not well formed.
    """
    path = catalog.root / "specs" / f"{kind}s" / f"{id}.yaml"
    known = catalog.path(f"{kind}s", id)
    if path.exists() or known is not None:
        raise RequestError(f"there is a {kind} {id!r} already: {catalog.shown(known or path)}")
    if "/" in id or id.startswith("."):
        raise RequestError(f"{id!r} cannot be a file name: use letters, digits and . _ -")
    head = f"id: {id}\nversion: 1                    # rises whenever its numbers change\n"
    if (catalog.root / "specs" / "schema").is_dir():
        head = f"# yaml-language-server: $schema=../schema/{kind}.json\n{head}"
    text = TEMPLATES[kind]
    if kind == "benchmark":
        dataset = _referred(catalog, "datasets", id, "Digits.simulated")
        text = DECODING if catalog.dataset(dataset).modality in SIGNALS else text
        text = text.replace(f"{'DATASET':<20}", f"{dataset:<20}")
    elif kind == "suite":
        text = text.replace("BENCHMARK", _referred(catalog, "benchmarks", id, "Digits.simulated.IT-ridge"))
    write_text(path, head + text)
    try:
        read_spec(path, f"{kind}s", catalog.shown(path))
    except Exception:
        path.unlink()
        raise
    return path


def _referred(catalog: Catalog, kind: str, id: str, usual: str) -> str:
    """What a new spec refers to: the longest id that its own begins with, the usual one, or the repository's first."""
    ids = catalog.ids(kind)
    same = [one for one in ids if id.startswith((f"{one}.", f"{one}-"))]
    if same:
        return max(same, key=len)
    if usual in ids:
        return usual
    if not ids:
        raise RequestError(
            f"no {kind[:-1]} yet that {id!r} could refer to: make one first, `neuroledger new {kind[:-1]} ID`"
        )
    return ids[0]
