"""New spec files that already pass `check`, each line saying what it is for."""

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
license: CC-BY-4.0            # SPDX id under which the data may be used
access: public                # or private: scores may be shown, values may not
cite: []                      # keys of specs/references.bib
unavailable: not packaged yet # replace by `files`, `reader` and `expectations`: `neuroledger package` writes them
""",
    "metric": """\
title: What it compares
compare: {name: regression, estimator: {name: ridge, alpha: 1}}  # of src/neuroledger/metrics/
splits: {name: shuffle, folds: 10, train: 0.9, by: stimulus_id}    # remove where nothing is fitted
aggregate: [{over: neuroid, with: median}, {over: split, with: mean}]
error: {over: split, with: sem}
scale: correlation            # what the number is; decides how a ceiling normalises it
direction: higher
cite: []
""",
    "ceiling": """\
title: What limits a score
compare: {name: internal_consistency}    # a function of src/neuroledger/ceilings/ and its parameters
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
dataset: Digits.simulated     # specs/datasets/
select: {region: V4}          # coordinates of the assembly
paradigm: {name: recording, region: V4, visual_degrees: 8}
metric: ridge                 # specs/metrics/, or {name: ridge, splits: {folds: 5}}
ceiling: internal_consistency # specs/ceilings/
controls: {negative: [noise]} # models that must stay at the floor; positive: those that must reach the ceiling
cite: []
""",
    "model": """\
title: What it is
builder: {name: pixels, size: 16}    # one of src/neuroledger/models/, and its parameters
pretraining: []                      # data sets that it was trained on
""",
    "suite": """\
title: What these benchmarks have in common
benchmarks: [Digits.simulated.IT-ridge]
models: [pixels16, noise]
""",
}

# The `modality` of data sets whose benchmarks decode, and how such a benchmark begins.
SIGNALS = ("eeg", "meg", "ieeg", "emg", "fmri")
DECODING = """\
title: What is read out of whose signals
parent: decoding
dataset: Digits.simulated     # specs/datasets/
paradigm: {name: decoding, target: label, splits: {name: cross_subject}}  # docs/decoding.md: what is held out
metric: balanced_accuracy     # specs/metrics/; decoding_pearson_r for numbers, top5_retrieval for embeddings
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
        There is such a file already, or the id is not fit for a file name.
    SpecError
        The id is not well formed.
    """
    path = catalog.root / "specs" / f"{kind}s" / f"{id}.yaml"
    if path.exists() or id in catalog.ids(f"{kind}s"):
        raise RequestError(f"there is a {kind} {id!r} already: {catalog.shown(path)}")
    if "/" in id or id.startswith("."):
        raise RequestError(f"{id!r} is not fit for a file name: use letters, digits and . _ -")
    schema = f"# yaml-language-server: $schema=../schema/{kind}.json"
    head = f"{schema}\nid: {id}\nversion: 1                    # rises whenever its numbers change\n"
    text = TEMPLATES[kind]
    own = [
        known for known in catalog.ids("datasets") if id.startswith(f"{known}.") or id.startswith(f"{known}-")
    ]
    if kind == "benchmark" and own:
        text = DECODING if catalog.dataset(max(own, key=len)).modality in SIGNALS else text
        text = text.replace("dataset: Digits.simulated     #", f"dataset: {max(own, key=len):<20} #")
    write_text(path, head + text)
    try:
        read_spec(path, f"{kind}s", catalog.shown(path))
    except Exception:
        path.unlink()
        raise
    return path
