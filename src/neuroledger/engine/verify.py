"""Is a record still what its inputs give? Tampered, stale, changed data, reproducible."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from neuroledger.data.load import verified_files
from neuroledger.display import Display
from neuroledger.engine.plan import Job, inputs_of
from neuroledger.engine.record import Record, read_record
from neuroledger.engine.run import run_job
from neuroledger.engine.session import Request, Session
from neuroledger.errors import DataError, IntegrityError, NeuroLedgerError, RequestError
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.identity import sha256_of

__all__ = ["Verdict", "verify"]

Doubt = tuple[Literal["data changed", "data not here"] | None, str]

# Another processor rounds differently: mostly, scores move by less than this. What is fitted step by step, or runs on from
# its own answers, amplifies rounding; then a hundredth of the score's standard error says that it is the same score.
TOLERANCE = 1e-8
SHARE = 0.01
HALF_WIDTH = 1.96  # standard errors from the value to either end of a 95 % interval


@dataclass(frozen=True)
class Verdict:
    """What was found about one record."""

    path: str
    state: Literal[
        "current",
        "reproduced",
        "failed before",
        "data not here",
        "tampered",
        "stale",
        "data changed",
        "not reproduced",
        "unreadable",
    ]
    reason: str = ""

    @property
    def good(self) -> bool:
        """Whether nothing speaks against the record (data that are not here can say nothing)."""
        return self.state in {"current", "reproduced", "failed before", "data not here"}

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "good": self.good}


def verify(catalog: Catalog, paths: Sequence[Path], *, recompute: bool, display: Display) -> list[Verdict]:
    """Verdicts on the records at ``paths`` (all of them when none are given).

    A record is tampered with when its own hash does not fit, stale when today's specs and components give another
    identity, and its data are changed when a file's bytes differ from the pin; every file is hashed anew. With
    ``recompute`` the score is computed again and compared.

    Raises
    ------
    RequestError
        A path does not exist.
    """
    chosen = list(paths) or sorted((catalog.root / "results" / "records").rglob("*.json"))
    sessions: dict[tuple[Any, ...], Session] = {}
    hashed: dict[tuple[str, str], Doubt] = {}
    verdicts = []
    for number, path in enumerate(chosen):
        if not path.is_file():
            raise RequestError(f"{path} does not exist")
        display.progress("verifying", number, len(chosen))
        verdicts.append(_verdict(catalog, path, recompute, sessions, hashed))
    display.progress("verifying", len(chosen), len(chosen))
    return verdicts


def _verdict(
    catalog: Catalog,
    path: Path,
    recompute: bool,
    sessions: dict[tuple[Any, ...], Session],
    hashed: dict[tuple[str, str], Doubt],
) -> Verdict:
    shown = catalog.shown(path.resolve())
    try:
        record = read_record(path)
    except DataError as error:
        return Verdict(shown, "unreadable", str(error))
    if not record.intact:
        return Verdict(shown, "tampered", "its content does not fit its own hash; run it again")
    request = Request(**record.request)
    try:
        inputs = inputs_of(catalog, catalog.benchmark(record.benchmark), record.model, request)
    except NeuroLedgerError as error:
        return Verdict(shown, "stale", str(error))
    if sha256_of(inputs) != record.id:
        return Verdict(
            shown, "stale", f"{', '.join(_moved(record.inputs, inputs))} changed since; run it again"
        )
    if record.status == "failed":
        return Verdict(shown, "failed before", (record.error or {}).get("message", ""))
    for kind, id in (("datasets", catalog.benchmark(record.benchmark).dataset), ("models", record.model)):
        state, reason = _hash_once(catalog, kind, id, hashed)
        if state is not None:
            return Verdict(shown, state, reason)
    if not recompute:
        return Verdict(shown, "current")
    session = sessions.setdefault((request.seed, request.limit, request.device), Session(catalog, request))
    again, _ = run_job(session, Job(record.model, record.benchmark, record.id, inputs))
    difference = _difference(record, again, lambda score: TOLERANCE)
    if difference is None:
        same = again.payload() == record.payload_sha256
        return Verdict(shown, "reproduced", "same payload" if same else f"within {TOLERANCE:g}")
    if _difference(record, again, _negligible) is None:
        return Verdict(shown, "reproduced", f"within {SHARE:g} standard errors: {difference}")
    return Verdict(shown, "not reproduced", difference)


def _hash_once(catalog: Catalog, kind: str, id: str, hashed: dict[tuple[str, str], Doubt]) -> Doubt:
    """What is wrong with the files of a data set or model, every byte read again, once per run."""
    if (kind, id) not in hashed:
        try:
            verified_files(catalog, kind, id, trust_memory=False)
            hashed[kind, id] = (None, "")
        except IntegrityError as error:
            hashed[kind, id] = ("data changed", str(error))
        except DataError as error:
            hashed[kind, id] = ("data not here", str(error))
    return hashed[kind, id]


def _moved(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]


def _negligible(score: Mapping[str, Any]) -> float:
    """How far a score may move: a small share of its standard error, as far as one is known."""
    error, low, high = (score.get(name) for name in ("error", "low", "high"))
    if error is None and low is not None and high is not None:
        error = (high - low) / (2 * HALF_WIDTH)
    return max(TOLERANCE, SHARE * (error or 0.0))


def _difference(old: Record, new: Record, allowed: Callable[[Mapping[str, Any]], float]) -> str | None:
    """The first number that moved by more than is allowed of its score, or None."""
    if new.score is None or old.score is None:
        return f"status {new.status} now: {(new.error or {}).get('message', '')}"
    for name in sorted(old.scores):
        held = old.scores[name]
        tolerance = allowed(held)
        for field in ("value", "raw"):
            was, now = held.get(field), new.scores.get(name, {}).get(field)
            if was is None and now is None:
                continue
            # The raw score has other units: what is allowed of the value is allowed of it in proportion.
            wide = max(1.0, abs(was / held["value"])) if field == "raw" and was and held.get("value") else 1.0
            if was is None or now is None or abs(was - now) > max(tolerance * wide, TOLERANCE * abs(was)):
                return f"{name} {field} was {was}, is {now}"
    return None
