"""Score simulated packages with Brain-Score's own code and with ours: ``python -m tests.parity PYTHON FOLDER [--page]``.

PYTHON is an interpreter with brainscore_vision, ``--language`` one with brainscore_language (`make parity` creates both).
Packages are generated from a seed, in the layouts and with the file names of the registry; the specs are those of the
catalogue, with the packages' hashes as pins; both sides use the same features and labels as a model. The result is one row
for every key: equal, differs, not measured, or refused.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.errors import NeuroLedgerError
from neuroledger.families.signals.models.language_readers import TextReader
from neuroledger.models import readout
from neuroledger.models.model import Record
from neuroledger.spec.channels import STIMULI
from tests.parity import exports
from tests.parity.stored_reader import features_of, time_of, word_of
from tools.brainscore import __main__ as generator
from tools.brainscore import language, pages, vision
from tools.brainscore.upstream import assemblies, benchmarks, stimulus_sets
from tools.long_tables import separated

PAGE = Path("docs/brainscore_parity.md")
TOLERANCE, PLS_TOLERANCE = 1e-9, 1e-6
SINGLE = (
    1e-6  # for files in single precision, which the peer averages in single precision
)
# For integers: equal dissimilarities are ordered by rounding in Brain-Score, and are ties here.
TIED = 1e-6
# Larger tolerances by prefix of the key, with the reason.
TOLERANCES = {
    "Ferguson2024": (1e-5, "sympy rounds its numbers to few digits"),
    "Zerbe2026": (1e-6, "the files and their averages have single precision"),
    "Pereira2018": (1e-7, "the correlation adds 1e-8 to the norms in its denominator"),
}
TOLERANCES |= dict.fromkeys(
    ("Blank2014", "Fedorenko2016", "Tuckute2024"), TOLERANCES["Pereira2018"]
)
# Keys of which only some numbers must be equal, with the reason.
BINS = "Brain-Score has one score per time bin; here the score is that of the mean over bins"
RAW = {
    "MajajHong2015public.IT-temporal": (("ceiling", "raw"), BINS),
    "MajajHong2015public.V4-temporal": (("ceiling", "raw"), BINS),
    "Cadena2017-pls": (
        ("raw",),
        "in Brain-Score a running number separates repetitions, so that halves are correlated without averaging; here they "
        "are averaged first",
    ),
    "Cadena2017-mask": (
        ("raw",),
        "Brain-Score's ceiling is NaN, because its halves contain images that some neurons were not shown; here averages "
        "are used",
    ),
}
# A tenth fewer stimuli, two repetitions, missing repetitions, one neuroid per group, integers, and single precision.
FORMS = ("few", "two", "ragged", "one", "counts", "single")
# Keys whose numbers differ by rule.
RULES = {
    "Blank2014-ridge": "for one of eight neuroids, one of 100 fits of the curve over subjects converges to another value; "
    "raw scores agree within 1e-8, and the fitted data within 1e-6",
    "Kar2019-ost": "the model does not vary in time, so Brain-Score's score is NaN and the pair is not scored here; the "
    "metric for models that vary needs TensorFlow 1",
}


@dataclass(frozen=True)
class Stored:
    """The peer's model: features by stimulus id, for responses and readouts, and labels."""

    features: dict[str, Any] = field(repr=False)
    labels: dict[str, str] = field(repr=False)
    id: str = "stored"
    visual_degrees: float | None = None
    takes = STIMULI  # by their ids, as the peer's model: displaced images have the same features
    gives = frozenset(
        {
            "responses",
            "decisions:label",
            "decisions:probabilities",
            "decisions:odd_one_out",
        }
    )

    def answer(self, question: Any) -> xr.DataArray:
        ids = question.stimuli.ids
        if not isinstance(question, Record):
            return self._decided(question, ids)
        rows = self._rows(ids)
        coords: dict[str, Any] = {"stimulus_id": ("presentation", ids)}
        coords["neuroid_id"] = ("neuroid", [f"f{n}" for n in range(rows.shape[1])])
        places = np.indices((10, 2, 2)).reshape(3, -1)  # as in the peer's model
        coords |= {
            name: ("neuroid", at)
            for name, at in zip(
                ("channel", "channel_x", "channel_y"), places, strict=True
            )
        }
        plain = xr.DataArray(rows, dims=("presentation", "neuroid"), coords=coords)
        if question.time_bins is None:
            return plain
        starts, ends = zip(*question.time_bins, strict=True)
        bins = {
            "time_bin_start": ("time_bin", list(starts)),
            "time_bin_end": ("time_bin", list(ends)),
        }
        return plain.expand_dims(time_bin=len(starts), axis=-1).assign_coords(bins)

    def _rows(self, ids: Any) -> Any:
        return np.stack([self.features[id] for id in ids])

    def _decided(self, question: Any, ids: Any) -> xr.DataArray:
        task = question.task
        if task.name == "label":
            coords = {"stimulus_id": ("presentation", ids)}
            return xr.DataArray(
                [self.labels[id] for id in ids], dims=("presentation",), coords=coords
            )
        if task.name == "odd_one_out":
            return readout.odd_one_out(
                self._rows(ids), ids, similarity=task.similarity, triplets=task.triplets
            )
        fitted = question.fitting_stimuli
        labels = [str(one) for one in fitted.table[task.label_column]]
        return readout.probabilities(
            self._rows(fitted.ids), labels, self._rows(ids), ids
        )


def stored_reader() -> TextReader:
    """The simulated reader of :mod:`tests.parity.stored_reader` as a model of this repository."""

    def read(contexts: Sequence[str], _: Sequence[str], asked: str) -> list[Any]:
        if asked == "language_system":
            return [features_of(one) for one in contexts]
        if asked == "next_word":
            return [word_of(one) for one in contexts]
        return [time_of(one, at) for at, one in enumerate(contexts)]

    return TextReader(id="stored", regions=("language_system",), read=read)


def jobs(only: tuple[str, ...] = ("",)) -> dict[str, Any]:
    """The benchmarks that the peer scores, and their packages."""
    known = {key: spec for kind, key, spec in vision.specs() if kind == "benchmark"}
    sets, listed, tables = vision.datasets(), assemblies(), stimulus_sets()
    states = pages.states(vision.specs())
    keys = [
        key
        for key in benchmarks()
        if states[key] not in pages.WITHOUT_JOB and key.startswith(only)
    ]
    # One key of every plugin first, so that an interrupted run has covered all layouts.
    rank: Counter[str] = Counter()
    order: dict[str, int] = {}
    for key in keys:
        order[key] = rank[benchmarks()[key]["plugin"]]
        rank[benchmarks()[key]["plugin"]] += 1
    keys.sort(key=order.__getitem__)
    used = dict.fromkeys(known[key]["dataset"] for key in keys)
    parts = {
        part: id
        for id in used
        for part in (sets[id].parts.values() or [sets[id].stimuli])
    }
    return {
        "keys": keys,
        "language": [
            key
            for key, state in pages.states(language.specs()).items()
            if state not in pages.WITHOUT_JOB and key.startswith(only)
        ],
        "packages": parts,
        "sets": {key: listed[key].stimuli for key in parts if key in listed},
        "assemblies": {key: listed[key].name("nc") for key in parts if key in listed},
        "stimuli": {
            key: {"csv": own.name("csv"), "zip": own.name("zip")}
            for key, own in tables.items()
        },
    }


def files_of(spec: dict[str, Any]) -> set[str]:
    """The files of a data set: those of the registry, and those that its reader names."""

    def named(value: Any) -> Iterator[str]:
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            for one in value.values() if isinstance(value, dict) else value:
                yield from named(one)

    told = (
        name for name in named(spec["reader"]) if name.endswith((".nc", ".csv", ".zip"))
    )
    return set(spec.get("downloads", spec.get("files", {}))) | set(told)


def repository(root: Path, packages: Path, keys: list[str]) -> dict[str, list[str]]:
    """Write a repository with the catalogue's specs for the existing packages; return its benchmarks by data set."""
    known = {
        (kind, key): spec
        for family in (vision, language)
        for kind, key, spec in family.specs()
    }
    for name, text in (
        ("dvc.yaml", "stages: {}\n"),
        ("params.yaml", "suite: parity\n"),
    ):
        (root / name).write_text(text, encoding="utf-8")
    found: dict[str, list[str]] = {}
    for key in keys:
        found.setdefault(known["benchmark", key]["dataset"], []).append(key)
    for id, own in list(found.items()):
        spec = dict(known["dataset", id])
        names = files_of(spec) or {"wiki.test.raw"}
        if not all((packages / name).is_file() for name in names):
            del found[id]
            continue
        # Pins and expectations of the real files do not apply to the simulated ones.
        spec = {
            key: value
            for key, value in spec.items()
            if key not in {"files", "expectations"}
        }
        spec |= {
            "access": "public",
            "access_steps": ["made by tests.parity"],
            "unavailable": "made by tests.parity",
            "downloads": {name: {} for name in sorted(names)},
        }
        _write(root, "dataset", id, spec)
        for key in own:
            _write(root, "benchmark", key, known["benchmark", key])
    return found


def _write(root: Path, kind: str, id: str, spec: dict[str, Any]) -> None:
    path = root / "specs" / f"{kind}s" / f"{id}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(generator.document(kind, spec), encoding="utf-8")


def stored_model(folder: Path) -> Stored:
    """The model with the features and labels that the peer wrote."""
    stored = np.load(folder / "model.npz")
    ids = stored["ids"].tolist()
    labels = dict(zip(ids, stored["labels"].tolist(), strict=True))
    return Stored(dict(zip(ids, stored["features"], strict=True)), labels)


def ours(
    root: Path, packages: Path, model: Any, held: dict[str, list[str]]
) -> dict[str, dict[str, Any]]:
    """Raw score, ceiling and score of each benchmark by our code."""
    from neuroledger.cli import main as command
    from neuroledger.display import choose
    from neuroledger.engine import evaluate, resolve, score
    from neuroledger.engine.session import Request, Session
    from neuroledger.families.alignment.brainscore_files import fetch_brainscore
    from neuroledger.models.activation_store import open_store
    from neuroledger.spec.catalog import open_catalog

    os.environ["NEUROLEDGER_MIRROR"] = str(packages)
    found: dict[str, dict[str, Any]] = {}
    for id, keys in held.items():
        try:
            fetch_brainscore(open_catalog(root), id)
        except NeuroLedgerError as error:
            found |= {
                key: {"failed": "import: " + " ".join(str(error).split())}
                for key in keys
            }
    command(["--root", str(root), "validate", "--allow-invalid", *held])
    catalog = open_catalog(root)
    with choose("none") as display:
        session = Session(catalog, Request(), open_store(root, display))
    for key in (key for own in held.values() for key in own if key not in found):
        try:
            # Without controls, which simulated data need not pass.
            asked_for = resolve.resolve(
                session, catalog.benchmark(key), model, evaluate.headline_of
            )
            floored = asked_for.benchmark.normalised_by == "floor"
            dummy = evaluate.dummy_of(session, asked_for) if floored else None
            here = score.headline(
                asked_for, score.measure(asked_for, session), session, dummy
            )
        except NeuroLedgerError as error:
            found[key] = {"failed": " ".join(str(error).split())}
            continue
        top = None if here.ceiling is None else here.ceiling.value
        by_ceiling = top is not None or catalog.benchmark(key).normalise != "none"
        found[key] = {
            "raw": here.raw if by_ceiling else here.value,
            "ceiling": top,
            "score": here.value,
        }
    return found


def verdict(
    key: str,
    peer: dict[str, Any],
    own: dict[str, Any] | None,
    forms: Sequence[str] = (),
) -> str:
    """The verdict: `equal` within the tolerance of the metric, or the difference."""
    if own is None:
        return "not measured: no package in this layout is generated yet"
    rule = next(
        (words for start, words in RULES.items() if key.startswith(start)), None
    )
    if rule:
        return f"differs by rule: {rule}"
    if "failed" in own and math.isnan(peer.get("score") or 0.0):
        return f"no number on either side: NaN in Brain-Score, refused here ({own['failed'][:120]})"
    if "failed" in peer:
        return f"Brain-Score fails: {peer['failed']}"
    if "failed" in own:
        return f"differs: NeuroLedger fails ({own['failed'][:160]})"
    limit = PLS_TOLERANCE if "pls" in key else TOLERANCE
    limit = next(
        (own for start, (own, _) in TOLERANCES.items() if key.startswith(start)), limit
    )
    limit = max(limit, SINGLE) if "single" in forms else limit
    limit = max(limit, TIED) if "counts" in forms and "rdm" in key else limit
    every = (("score", "ceiling", "raw"), "")
    compared, only = next(
        (held for start, held in RAW.items() if key.startswith(start)), every
    )
    for name in compared:
        a, b = peer[name], own[name]
        # A score without normalisation has a ceiling of 1 at the peer, and none here.
        if a is None or b is None:
            continue
        # When the peer clips a score to a bound, it writes the bound to the raw score too.
        if name == "raw" and a == peer["score"] and a in {0, 1}:
            continue
        if math.isnan(a) and math.isnan(b):
            continue
        if not abs(a - b) <= limit:
            return f"differs: {name} {a:.6f} against {b:.6f}"
    return f"equal before normalisation: {only}" if only else "equal"


def rows(
    peer: dict[str, Any], own: dict[str, Any], forms: Sequence[str] = ()
) -> Iterator[tuple[str, str, str, str]]:
    """Key, the peer's score, our score and verdict, for all keys of the registry."""

    def said(one: dict[str, Any] | None) -> str:
        value = (one or {}).get("score")
        return "–" if value is None else f"{value:.6f}"

    for family in (vision, language):
        for key, state in pages.states(family.specs()).items():
            if key in peer:
                yield (
                    key,
                    said(peer[key]),
                    said(own.get(key)),
                    verdict(key, peer[key], own.get(key), forms),
                )
            elif state in pages.WITHOUT_JOB:
                yield key, "–", "–", state
            else:
                yield (
                    key,
                    "–",
                    said(own.get(key)),
                    "not measured: Brain-Score was not run",
                )


def page(
    peer: dict[str, Any], own: dict[str, Any], seed: int, forms: Sequence[str] = ()
) -> str:
    """The page: the table of all keys, and the number of keys by verdict."""
    table = list(rows(peer, own, forms))
    count = Counter(row[3].partition(":")[0] for row in table)
    summary = ", ".join(f"{number} {word}" for word, number in count.most_common())
    return "\n".join(
        [
            "# Parity with Brain-Score",
            "",
            f"Output of the last run of `make parity`, with packages generated from seed {seed} in the layouts of",
            "Brain-Score's registry. The libraries brainscore_vision 2.4.2 and brainscore_language 2.3.0 write the",
            "packages in separate environments, and their benchmarks score them for a model of stored features and",
            "labels, or for a simulated reader. NeuroLedger scores the same packages with the specs of the catalogue,",
            "after `import`. The suites of SyntaxGym are the real ones. The metric of Cadena2017-mask calls TensorFlow",
            "1; its operations are replaced by the same operations of NumPy in double precision. Loss, training, draws",
            "and predictions are Brain-Score's own code.",
            "",
            "*Equal* means that score, ceiling and raw score agree within 1e-9 (partial least squares: 1e-6;",
            *(
                f"{', '.join(key for key, own in TOLERANCES.items() if own == (limit, why))}: {limit:g}, since {why};"
                for limit, why in dict.fromkeys(TOLERANCES.values())
            ),
            "all other tolerances are the same).",
            "",
            f"{summary}; {len(table)} keys.",
            "",
            "`--odd` generates packages with Unicode names, unordered tables and presentations, missing trials and",
            "additional coordinates. `--form` generates other sizes and number formats: fewer stimuli, two",
            "repetitions, missing repetitions, one neuroid, integers and single precision. Equal dissimilarities of",
            "integers are ties here and are ordered by rounding in Brain-Score, which also averages single precision",
            "without conversion; the tolerance for these two forms is 1e-6. `--seed` sets another seed.",
            "",
            "NeuroLedger always matches rows by id. Some of Brain-Score's benchmarks match by position, with the",
            "model's responses in the order of the table: Coggan2024 compares them row by row with those of subjects,",
            "`reverse_pls` draws its splits over them, and Igustibagus2024-ridge looks up backgrounds in them. These",
            "numbers agree only if table and recordings have the same order, as in the plain packages.",
            "",
            "| benchmark | Brain-Score's code | here | verdict |",
            "|---|--:|--:|---|",
            *(f"| {key} | {a} | {b} | {found} |" for key, a, b, found in table),
            "",
        ]
    )


def opened_again(python: Path, folder: Path, asked: dict[str, Any]) -> list[str]:
    """Import, validate and export every package, and open it with Brain-Score; return the lines of the page."""
    failed = exports.export_all(
        folder / "exporting", folder / "packages", asked, folder / "exported"
    )
    subprocess.run(
        [python.absolute(), "-m", "tests.parity.exported", folder], check=False
    )
    found: dict[str, str] = json.loads(
        (folder / "exported.json").read_text(encoding="utf-8")
    )
    return exports.lines(found, failed)


def main() -> int:
    """Generate packages, score them with both projects, and print the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("python", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--odd",
        action="store_true",
        help="Unicode names, unordered rows, missing trials, additional coordinates",
    )
    parser.add_argument("--page", action="store_true", help=f"write {PAGE}")
    parser.add_argument(
        "--seconds",
        type=float,
        default=0,
        help="start no benchmark of Brain-Score after this time; the next call continues",
    )
    parser.add_argument(
        "--only", nargs="+", default=[""], help="benchmarks whose key has this prefix"
    )
    parser.add_argument(
        "--form",
        nargs="+",
        default=[],
        choices=FORMS,
        help="other sizes and number formats",
    )
    parser.add_argument(
        "--language", type=Path, help="an interpreter with brainscore_language"
    )
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    asked = jobs(tuple(options.only)) | {
        "seed": options.seed,
        "odd": options.odd,
        "forms": options.form,
    }
    (folder / "jobs.json").write_text(json.dumps(asked), encoding="utf-8")
    peer: dict[str, Any] = {}
    own: dict[str, Any] = {}
    sides = [(options.python, "peer", "packages")]
    sides += [(options.language, "language_peer", "texts")] if options.language else []
    for python, module, packages in sides:
        result = folder / ("peer.json" if module == "peer" else "language.json")
        with (folder / f"{module}.log").open(
            "a", encoding="utf-8"
        ) as log:  # its progress bars
            asking = [
                python.absolute(),
                "-m",
                f"tests.parity.{module}",
                folder,
                str(options.seconds),
            ]
            subprocess.run(asking, check=False, stdout=log, stderr=log)
        said = json.loads(result.read_text(encoding="utf-8"))
        peer |= said
        root = folder / f"ours_{packages}"
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        keys = [
            key
            for key in asked["keys" if module == "peer" else "language"]
            if key in said
        ]
        model = stored_model(folder) if module == "peer" else stored_reader()
        own |= ours(
            root, folder / packages, model, repository(root, folder / packages, keys)
        )
        (folder / "own.json").write_text(json.dumps(own, indent=1), encoding="utf-8")
    text = page(peer, own, options.seed, options.form)
    if options.only == [""]:
        text += "\n" + "\n".join(opened_again(options.python, folder, asked))
    sys.stdout.write(text)
    if options.page:
        for name, part in separated(PAGE.as_posix(), text).items():
            Path(name).write_text(part, encoding="utf-8")
    return int("| differs:" in text or "| package | differs |" in text)


if __name__ == "__main__":
    sys.exit(main())
