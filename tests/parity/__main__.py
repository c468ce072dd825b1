"""Made-up packages, scored by Brain-Score's own code and by ours: ``python -m tests.parity PYTHON FOLDER [--page]``.

PYTHON is an interpreter with brainscore_vision (`make parity` makes one). Packages come from a seed, in the layouts of the
registry and under its file names; the specs are those of the catalogue, with the packages' hashes as pins; the model is
one set of features, or of labels, on both sides. One row for every key: equal, differs, not measured, refused.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from data.brainscore import __main__ as generator
from data.brainscore import language, pages, vision
from data.brainscore.upstream import assemblies, benchmarks, stimulus_sets
from neuroledger.errors import NeuroLedgerError
from neuroledger.models.model import Record

PAGE = Path("docs/brainscore_parity.md")
TOLERANCE, PLS_TOLERANCE = 1e-9, 1e-6
NEURAL = {"majajhong2015", "freemanziemba2013", "sanghavi2020", "rajalingham2020", "li2026"}
SUBJECTS = {"papale2025", "hebart2023_fmri"}
LABELS = {"geirhos2021", "scialom2024", "bmd2024"}


@dataclass(frozen=True)
class Stored:
    """The peer's model: features or labels by stimulus id."""

    values: dict[str, Any] = field(repr=False)
    id: str = "stored"
    visual_degrees: float | None = None
    takes = frozenset({"images"})
    gives = frozenset({"responses", "decisions:label"})

    def answer(self, question: Any) -> xr.DataArray:
        ids = question.stimuli.ids
        rows = np.asarray([self.values[id] for id in ids])
        coords: dict[str, Any] = {"stimulus_id": ("presentation", ids)}
        if not isinstance(question, Record):
            return xr.DataArray(rows, dims=("presentation",), coords=coords)
        coords["neuroid_id"] = ("neuroid", [f"f{n}" for n in range(rows.shape[1])])
        plain = xr.DataArray(rows, dims=("presentation", "neuroid"), coords=coords)
        if question.time_bins is None:
            return plain
        starts, ends = zip(*question.time_bins, strict=True)
        bins = {"time_bin_start": ("time_bin", list(starts)), "time_bin_end": ("time_bin", list(ends))}
        return plain.expand_dims(time_bin=len(starts), axis=-1).assign_coords(bins)


def jobs() -> dict[str, list[dict[str, Any]]]:
    """What the peer is asked, by data set."""
    found: dict[str, list[dict[str, Any]]] = {}
    known = {key: spec for kind, key, spec in vision.specs() if kind == "benchmark"}
    sets, listed, tables = vision.datasets(), assemblies(), stimulus_sets()
    for key, row in benchmarks().items():
        spec = known[key]
        metric = spec.get("metric")
        name = metric["name"] if isinstance(metric, dict) else metric
        if "unavailable" in spec or row["plugin"] not in NEURAL | SUBJECTS | LABELS:
            continue
        data = sets[spec["dataset"]]
        job: dict[str, Any] = {"key": key, "dataset": data.id, "region": row["region"], "metric": name}

        def files(assembly: str) -> dict[str, str]:
            own = listed[assembly]
            stimuli = tables[own.stimuli]
            return {"nc": own.name("nc"), "csv": stimuli.name("csv"), "zip": stimuli.name("zip")}

        if row["plugin"] in NEURAL and name == "pls":
            window = next(
                (step["window"] for step in spec["paradigm"].get("prepare", ()) if "window" in step), None
            )
            job |= files(data.parts[""]) | {
                "layout": "neural", "by": metric["splits"]["stratify"], "window": window or [70, 170],
                "bins": [[0, 50, 100, 150, 200], [50, 100, 150, 200, 250]] if window else [[70], [170]],
                "reliability": "reliability_window" if row["plugin"] == "li2026" else None,
            }  # fmt: skip
        elif row["plugin"] in SUBJECTS:
            ((noise, limit),) = ((n, v) for n, v in spec["select"].items() if n != "region")
            above = limit["above"]
            job |= {
                "layout": "subjects",
                "noise": noise,
                "above": above,
                "percent": 100 if above > 1 else 1,
                "start": 70,
            }
            for split, part in data.parts.items():
                job |= {f"{split}_{kind}": file for kind, file in files(part).items()}
        elif row["plugin"] in LABELS:
            excluded = spec.get("select", {}).get("condition", {}).get("not", [])
            job |= files(data.parts[""]) | {
                "layout": "labels",
                "excluded": excluded,
                "clip": bool(spec.get("normalise") != "none" and spec.get("normalise", {}).get("clip")),
            }
        else:
            continue
        found.setdefault(data.id, []).append(job)
    return found


def repository(root: Path, folder: Path, asked: dict[str, list[dict[str, Any]]]) -> None:
    """A repository with the catalogue's specs of what was packaged, pinned to the packages."""
    sets = vision.datasets()
    known = {(kind, key): spec for kind, key, spec in vision.specs()}
    for name, text in (("dvc.yaml", "stages: {}\n"), ("params.yaml", "suite: parity\n")):
        (root / name).write_text(text, encoding="utf-8")
    for id, ours in asked.items():
        spec = dict(known["dataset", id])
        spec |= {"files": {}, "access": "public", "access_steps": ["made by tests.parity"]}
        for name in spec.pop("downloads"):
            content = (folder / id / name).read_bytes()
            spec["files"][name] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}
            target = root / "data" / sets[id].id / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
        del spec["unavailable"]
        dims = ["presentation"] if ours[0]["layout"] == "labels" else ["presentation", "neuroid", "time_bin"]
        spec["expectations"] = {
            "stimuli": [{"check": "unique", "column": "stimulus_id"}], "assembly": [{"check": "dims", "dims": dims}],
        }  # fmt: skip
        _write(root, "dataset", id, spec)
        for job in ours:
            _write(root, "benchmark", job["key"], known["benchmark", job["key"]])


def _write(root: Path, kind: str, id: str, spec: dict[str, Any]) -> None:
    path = root / "specs" / f"{kind}s" / f"{id}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(generator.document(kind, spec), encoding="utf-8")


def ours(root: Path, folder: Path, asked: dict[str, list[dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Raw score, ceiling and score of each benchmark by our code."""
    from neuroledger.cli import main as command
    from neuroledger.display import choose
    from neuroledger.engine import evaluate, resolve, score
    from neuroledger.engine.session import Request, Session
    from neuroledger.models.activation_store import open_store
    from neuroledger.spec.catalog import open_catalog

    command(["--root", str(root), "validate", "--allow-invalid", *asked])
    catalog = open_catalog(root)
    with choose("none") as display:
        session = Session(catalog, Request(), open_store(root, display))
    found: dict[str, dict[str, Any]] = {}
    for id, jobs_of in asked.items():
        held = np.load(folder / id / "model.npz")
        values = held["features"] if "features" in held else held["labels"]
        model = Stored(dict(zip(held["ids"].tolist(), values, strict=True)))
        for job in jobs_of:
            try:
                # Without the controls, which made-up people and neuroids need not pass.
                asked_for = resolve.resolve(session, catalog.benchmark(job["key"]), model, evaluate._headline)
                found_here = score.headline(asked_for, score.measure(asked_for, session), session, None)
            except NeuroLedgerError as error:
                found[job["key"]] = {"failed": str(error)}
                continue
            top = None if found_here.ceiling is None else found_here.ceiling.value
            raw = found_here.raw if top is not None else found_here.value
            found[job["key"]] = {"raw": raw, "ceiling": top, "score": found_here.value}
    return found


def verdict(key: str, peer: dict[str, Any], own: dict[str, Any]) -> str:
    """`equal` within the tolerance of the metric, or what differs."""
    if "failed" in peer or "failed" in own:
        who = "the peer" if "failed" in peer else "ours"
        return f"differs: {who} gives none ({(peer if 'failed' in peer else own)['failed'][:90]})"
    limit = PLS_TOLERANCE if "pls" in key else TOLERANCE
    for name in ("raw", "ceiling", "score"):
        a, b = peer[name], own[name]
        if (a is None) != (b is None):
            return f"differs: {name} {a} against {b}"
        if a is not None and b is not None and abs(a - b) > limit:
            return f"differs: {name} {a:.6f} against {b:.6f}"
    return "equal"


def rows(peer: dict[str, Any], own: dict[str, Any]) -> Iterator[tuple[str, str, str, str]]:
    """Key, the peer's score, ours, verdict; for all keys of the registry."""
    for name, family in (("vision", vision), ("language", language)):
        for key, state in pages.states(family.specs()).items():
            if key in peer:
                said = [one.get("score") for one in (peer[key], own[key])]
                yield (
                    key,
                    *("–" if one is None else f"{one:.6f}" for one in said),
                    verdict(key, peer[key], own[key]),
                )
            elif state in pages.WITHOUT_JOB:
                yield key, "–", "–", state
            else:
                why = (
                    "no package in its layout is made here yet"
                    if name == "vision"
                    else "scored by our code only"
                )
                yield key, "–", "–", f"not measured: {why}"


def main() -> int:
    """Make, score on both sides, print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("python", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--page", action="store_true", help=f"write {PAGE}")
    parser.add_argument(
        "--seconds", type=float, help="how long the peer may take; what it leaves is not measured"
    )
    parser.add_argument("--only", default="", help="data sets whose id begins so")
    options = parser.parse_args()
    home, folder = Path.cwd(), options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    asked = {id: these for id, these in jobs().items() if id.startswith(options.only)}
    (folder / "jobs.json").write_text(json.dumps({"seed": options.seed, "datasets": asked}), encoding="utf-8")
    script = Path(__file__).with_name("peer.py")
    with (folder / "peer.log").open("w", encoding="utf-8") as log:  # its bars of progress
        try:
            asking = [options.python.absolute(), script, folder]
            subprocess.run(asking, check=True, stdout=log, stderr=log, timeout=options.seconds)
        except subprocess.TimeoutExpired:
            pass  # what it did not come to is not measured
    peer = json.loads((folder / "peer.json").read_text(encoding="utf-8"))
    root = folder / "ours"
    root.mkdir(exist_ok=True)
    here = {
        id: these for id, these in asked.items() if all((folder / id / "model.npz").is_file() for _ in these)
    }
    repository(root, folder, here)
    own = ours(root, folder, here)
    for these in asked.values():
        for job in these:
            own.setdefault(job["key"], {"failed": "not scored, as the peer gives none"})
    table = list(rows(peer, own))
    count = Counter(row[3].partition(":")[0] for row in table)
    lines = [f"| {key} | {a} | {b} | {found} |" for key, a, b, found in table]
    summary = ", ".join(f"{number} {word}" for word, number in count.most_common())
    text = "\n".join(
        [
            "# Parity with Brain-Score",
            "",
            f"The last print of `make parity`: packages made from seed {options.seed} in the layouts of Brain-Score's",
            "registry, written and scored by brainscore_vision 2.4.2 in an environment of its own, and scored by the specs",
            "of this repository. Equal means raw score, ceiling and score within 1e-9 (partial least squares: 1e-6).",
            "Of what is not measured here, tests compare the metrics with recorded numbers of the peer's code.",
            "",
            f"{summary}; {len(table)} keys.",
            "",
            "| benchmark | Brain-Score's code | here | verdict |",
            "|---|--:|--:|---|",
            *lines,
        ]
    )
    sys.stdout.write(text + "\n")
    if options.page:
        (home / PAGE).write_text(text + "\n", encoding="utf-8")
    return int(any(row[3].startswith("differs") for row in table))


if __name__ == "__main__":
    sys.exit(main())
