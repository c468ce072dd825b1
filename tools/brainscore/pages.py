"""The page that lists the benchmark of each key of Brain-Score's registry with its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

PATH = "docs/brainscore.md"
WITHOUT_JOB = ("refused",)


def state(spec: dict[str, Any], dataset: dict[str, Any]) -> str:
    """What a benchmark needs before it can be scored, in a few words."""
    reason = spec.get("unavailable") or dataset.get("unavailable", "")
    if reason.startswith("Refused"):
        return "refused"
    if "neuroledger pin" in reason:
        return "ready after pin"
    return (
        "ready after fetch"
        if dataset.get("access", "public") == "public"
        else "private upstream"
    )


def states(specs: Iterable[tuple[str, str, dict[str, Any]]]) -> dict[str, str]:
    """The state of each benchmark by registry key."""
    known = list(specs)
    sets = {key: spec for kind, key, spec in known if kind == "dataset"}
    return {
        key: state(spec, sets[spec["dataset"]])
        for kind, key, spec in known
        if kind == "benchmark"
    }


def page(*families: tuple[str, list[tuple[str, str, dict[str, Any]]]]) -> str:
    """The page: families by name, each with its specs."""
    counts = {name: Counter(states(specs).values()) for name, specs in families}
    every = sorted({word for counted in counts.values() for word in counted})
    lines = [
        "# Brain-Score's registry in this repository",
        "",
        "`python -m tools.brainscore` generates this page from the tables of Brain-Score's registry in `tools/brainscore`.",
        "A test checks that the page is up to date. Each benchmark has one of four states:",
        "",
        "* *ready after fetch*: `neuroledger import brainscore KEY` downloads the files, verifies their published checksums",
        "  and pins them.",
        "* *ready after pin*: no checksum is published. Download the file, then pin it with `neuroledger pin KEY",
        "  --from FOLDER`.",
        "* *private upstream*: as *ready after fetch*, but the download needs credentials for Brain-Score's bucket in the",
        "  environment.",
        "* *refused*: a rule of this repository excludes the benchmark. The reasons are listed below each table.",
        "",
        "A benchmark whose data are missing has no job and no failed record, and it does not enter any mean: `neuroledger",
        "run --suite brainscore.vision` succeeds and reports which benchmarks are unavailable. The suite",
        "`brainscore.public` contains the benchmarks whose files can be downloaded without credentials. The",
        "[parity page](brainscore_parity.md) compares scores on synthetic packages with those of Brain-Score's own code.",
        "",
        "| state | " + " | ".join(counts) + " |",
        "|---|" + "--:|" * len(counts),
        *(
            f"| {word} | "
            + " | ".join(str(counted[word]) for counted in counts.values())
            + " |"
            for word in every
        ),
        "| all | "
        + " | ".join(str(counted.total()) for counted in counts.values())
        + " |",
    ]
    for name, specs in families:
        lines += ["", f"## {name.capitalize()}", "", *_table(specs)]
    return "\n".join(lines) + "\n"


def _table(specs: list[tuple[str, str, dict[str, Any]]]) -> Iterator[str]:
    sets = {key: spec for kind, key, spec in specs if kind == "dataset"}
    of = states(specs)
    yield "| benchmark | version | parent | data set | metric | Brain-Score's ceiling | state |"
    yield "|---|--:|---|---|---|--:|---|"
    reasons = set()
    for kind, key, spec in specs:
        if kind != "benchmark":
            continue
        metric = spec.get("metric") or spec["metrics"][0]
        name = metric["name"] if isinstance(metric, dict) else metric
        ceilings = (
            note for note in spec.get("notes", ()) if note.startswith("Ceiling")
        )
        ceiling = next(ceilings, "").partition(": ")[2].rstrip(".")
        yield (
            f"| {key} | {spec['version']} | {spec['parent']} | {spec['dataset']} | {name} | {ceiling} | {of[key]} |"
        )
        if of[key] in WITHOUT_JOB:
            reasons.add(spec.get("unavailable") or sets[spec["dataset"]]["unavailable"])
    yield ""
    yield "A refused benchmark has no job, even if its data are present. Reasons:"
    yield ""
    yield from (f"* {reason}" for reason in sorted(reasons))
