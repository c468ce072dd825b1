"""The page that lists every generated benchmark beside Brain-Score's registry, with its state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

PATH = "docs/brainscore.md"
WITHOUT_JOB = ("refused",)


def state(spec: dict[str, Any], dataset: dict[str, Any]) -> str:
    """In a word: what a benchmark needs before it has a score."""
    reason = spec.get("unavailable") or dataset.get("unavailable", "")
    if reason.startswith("Refused"):
        return "refused"
    if "neuroledger pin" in reason:
        return "ready after pin"
    return "ready after fetch" if dataset.get("access", "public") == "public" else "private upstream"


def states(specs: Iterable[tuple[str, str, dict[str, Any]]]) -> dict[str, str]:
    """The state of each benchmark by registry key."""
    known = list(specs)
    sets = {key: spec for kind, key, spec in known if kind == "dataset"}
    return {key: state(spec, sets[spec["dataset"]]) for kind, key, spec in known if kind == "benchmark"}


def page(*families: tuple[str, list[tuple[str, str, dict[str, Any]]]]) -> str:
    """The page: families by name, each with its specs."""
    found = {name: Counter(states(specs).values()) for name, specs in families}
    every = sorted({word for counted in found.values() for word in counted})
    lines = [
        "# Brain-Score's registry in this repository",
        "",
        "Written by `python -m data.brainscore` from the facts of Brain-Score's registry; a test compares it with them.",
        "",
        "* *ready after fetch*: `neuroledger import brainscore KEY` fetches the files, checks what is stated, pins them;",
        "* *ready after pin*: nobody states a checksum: `neuroledger pin KEY --from FOLDER` pins what you downloaded;",
        "* *private upstream*: fetched likewise, with credentials for Brain-Score's bucket in the environment;",
        "* *refused*: a rule of this repository forbids the score; the rules are listed below the tables.",
        "",
        "Nothing of this has a job, a failed record or a place in a mean before its data are here: `neuroledger run --suite",
        "brainscore.vision` ends well and says what is missing. `brainscore.public` lists what anyone can fetch. The",
        "[page of parity](brainscore_parity.md) compares scores of made-up packages with those of Brain-Score's own code.",
        "",
        "| state | " + " | ".join(found) + " |",
        "|---|" + "--:|" * len(found),
        *(
            f"| {word} | " + " | ".join(str(counted[word]) for counted in found.values()) + " |"
            for word in every
        ),
        "| all | " + " | ".join(str(counted.total()) for counted in found.values()) + " |",
    ]
    for name, specs in families:
        lines += ["", f"## {name.capitalize()}", "", *_table(specs)]
    return "\n".join(lines) + "\n"


def _table(specs: list[tuple[str, str, dict[str, Any]]]) -> Iterator[str]:
    sets = {key: spec for kind, key, spec in specs if kind == "dataset"}
    of = states(specs)
    yield "| benchmark | version | parent | data set | metric | ceiling upstream | state |"
    yield "|---|--:|---|---|---|--:|---|"
    reasons = set()
    for kind, key, spec in specs:
        if kind != "benchmark":
            continue
        metric = spec.get("metric") or spec["metrics"][0]
        name = metric["name"] if isinstance(metric, dict) else metric
        told = (note for note in spec.get("notes", ()) if note.startswith("Ceiling"))
        ceiling = next(told, "").partition(": ")[2].rstrip(".")
        yield (
            f"| {key} | {spec['version']} | {spec['parent']} | {spec['dataset']} | {name} | {ceiling} | {of[key]} |"
        )
        if of[key] in WITHOUT_JOB:
            reasons.add(spec.get("unavailable") or sets[spec["dataset"]]["unavailable"])
    yield ""
    yield "Without a job, whatever data are here:"
    yield ""
    yield from (f"* {reason}" for reason in sorted(reasons))
