"""What the records of a repository say about a claim, and its entry among the looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from neuroledger.engine.claims.looks import (
    Look,
    LookedPath,
    Looks,
    Turn,
    numbered,
    read_looks,
    turned,
    write_looks,
)
from neuroledger.engine.compare import lacks_items
from neuroledger.engine.outcome import Pending, pending_for
from neuroledger.engine.plan import again, inputs_of
from neuroledger.engine.record import Record, read_record, record_path
from neuroledger.engine.records.calibrations import refuted
from neuroledger.engine.session import Request
from neuroledger.errors import DataError, NeuroLedgerError, SpecError
from neuroledger.spec.base import sha256_of, spec_sha256
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.kinds import ClaimSpec
from neuroledger.stats.claims import METHOD, Gain, Status, gain, level_of, status_of
from neuroledger.stats.random_effects import Pooled, pooled
from neuroledger.stats.uncertainty import VERSION, Uncertainty, total

__all__ = ["Standing", "Tried", "look_at", "standing"]

RECORD = "claim.record"


class Tried(NamedTuple):
    """One path of a multiverse: a pair of models on a benchmark of a data set, and the gain there."""

    benchmark: str
    dataset: str
    scale: str
    above: str
    below: str
    gain: Gain


@dataclass(frozen=True)
class Standing:
    """What the records say about a claim.

    Attributes
    ----------
    paths
        The paths whose records exist and are up to date.
    look
        The look at these records; None if a record is pending.
    pending
        What is pending, by benchmark and model.
    pooled
        The mean gain over data sets; None unless the paths are of several data sets and of one scale.
    turn
        The commit since which the committed looks have their status.
    """

    claim: ClaimSpec
    paths: tuple[Tried, ...]
    look: Look | None
    pending: tuple[tuple[str, Pending], ...]
    pooled: Pooled | None
    turn: Turn | None = None

    @property
    def status(self) -> Status | Literal["pending"]:
        """The status of the claim."""
        if self.look is None:
            return "pending"
        return self.look.status

    @property
    def agreeing(self) -> int:
        """Number of paths that reject a gain of at most the margin, each at the level of the look."""
        level = 0.0 if self.look is None else self.look.level
        return sum(path.gain.p_above <= level for path in self.paths)


def look_at(catalog: Catalog, id: str) -> Standing:
    """Return the standing of a claim, and enter the look if these records have not just been looked at.

    Raises
    ------
    RequestError, SpecError
        There is no such claim, or its spec is invalid.
    DataError
        The file of looks is invalid, or states another status than its records give.
    """
    found, looks = _looked(catalog, id)
    if found.look is not None and found.look != looks.latest:
        entered = looks.model_copy(update={"looks": (*looks.looks, found.look)})
        write_looks(catalog.root, entered)
    return replace(found, turn=turned(catalog.root, id))


def standing(catalog: Catalog, id: str) -> Standing:
    """Return the standing of a claim without a new look: records that were not looked at are pending.

    Raises
    ------
    RequestError, SpecError, DataError
        As :func:`look_at`.
    """
    found, looks = _looked(catalog, id)
    found = replace(found, turn=turned(catalog.root, id))
    if found.look is None or found.look == looks.latest:
        return found
    words = "the records were not looked at since they changed"
    unseen = Pending(words, f"neuroledger claims {id}", RECORD)
    return replace(found, look=None, pending=((id, unseen),))


def _looked(catalog: Catalog, id: str) -> tuple[Standing, Looks]:
    """Return the standing with the look at the present records, which is entered nowhere yet, and the known looks."""
    claim = catalog.claim(id)
    looks = read_looks(catalog.root, id)
    withheld = refuted(catalog)
    needed = {
        (benchmark, model): _needed(catalog, benchmark, model)
        for benchmark, model in _pairs(claim)
    }
    records = {key: one for key, one in needed.items() if isinstance(one, Record)}
    pending = [
        (f"{benchmark} · {model}", one)
        for (benchmark, model), one in needed.items()
        if isinstance(one, Pending)
    ]
    pending += _of_other_seeds(claim, records)
    paths = tuple(_paths(catalog, claim, records, withheld))
    if pending:
        return Standing(claim, paths, None, tuple(pending), _pooled(paths)), looks
    evidence = _evidence(claim, records, withheld)
    look = _look(looks, evidence, paths)
    return Standing(claim, paths, look, (), _pooled(paths)), looks


def _look(looks: Looks, evidence: str, paths: tuple[Tried, ...]) -> Look:
    """Return the look at this evidence: the known one if there is one.

    Raises
    ------
    DataError
        The known look states another status than the records give.
    """
    number = numbered(looks.looks, evidence)
    level = level_of(number)
    status = status_of([path.gain for path in paths], level)
    known = next((look for look in looks.looks if look.evidence == evidence), None)
    if known is not None and known.status != status:
        raise DataError(
            f"results/claims/{looks.claim}.json states {known.status} at look {number}, but these records give {status}; "
            "restore the file from git"
        )
    stored = tuple(_stored(path) for path in paths)
    return known or Look(
        number=number, evidence=evidence, level=level, status=status, paths=stored
    )


def _pairs(claim: ClaimSpec) -> Iterator[tuple[str, str]]:
    """Yield benchmark and model of each record that a claim needs, once."""
    models = dict.fromkeys(
        model for pair in claim.pairs for model in (pair.above, pair.below)
    )
    for benchmark in claim.benchmarks:
        for model in models:
            yield benchmark, model


def _needed(catalog: Catalog, benchmark: str, model: str) -> Record | Pending:
    """Return the record of a pair if it is what its inputs give now, otherwise what is pending."""
    command = again(model, benchmark)
    path = record_path(catalog.root, benchmark, model)
    if not path.exists():
        return Pending("there is no record", command, RECORD)
    try:
        record = read_record(path)
    except DataError:
        return Pending("the file is not a record", command, RECORD)
    if not record.intact or (record.benchmark, record.model) != (benchmark, model):
        return Pending("the record was edited", command, RECORD)
    if record.status == "partial":
        return Pending("the record is of a part of the data", command, RECORD)
    asked = record.request
    request = Request(asked.seed, asked.limit, asked.device)
    try:
        spec = catalog.benchmark(benchmark)
        inputs = inputs_of(catalog, spec, model, request)
    except (SpecError, NeuroLedgerError) as error:
        return pending_for(error, again=command)
    if inputs.sha256 != record.id:
        return Pending("the record is outdated", command, RECORD)
    return record


def _of_other_seeds(
    claim: ClaimSpec, records: Mapping[tuple[str, str], Record]
) -> Iterator[tuple[str, Pending]]:
    """Yield what is pending because two records of a path have other seeds, so that they cannot be paired."""
    for benchmark in claim.benchmarks:
        for pair in claim.pairs:
            first = records.get((benchmark, pair.above))
            second = records.get((benchmark, pair.below))
            if first is None or second is None:
                continue
            seed = first.request.seed
            if second.request.seed != seed:
                words = f"the record has not the seed {seed} of {pair.above}"
                command = f"{again(pair.below, benchmark)} --seed {seed}"
                name = f"{benchmark} · {pair.below}"
                yield name, Pending(words, command, RECORD)


def _paths(
    catalog: Catalog,
    claim: ClaimSpec,
    records: Mapping[tuple[str, str], Record],
    withheld: Mapping[str, str],
) -> Iterator[Tried]:
    """Yield the paths of which both records exist."""
    for benchmark in claim.benchmarks:
        spec = catalog.benchmark(benchmark)
        for pair in claim.pairs:
            above = records.get((benchmark, pair.above))
            below = records.get((benchmark, pair.below))
            if above is None or below is None:
                continue
            scale = "" if above.score is None else above.score.scale
            found = _gain(above, below, claim.at_least, withheld.get(benchmark, ""))
            yield Tried(benchmark, spec.dataset, scale, pair.above, pair.below, found)


def _gain(above: Record, below: Record, at_least: float, withheld: str) -> Gain:
    """Return the gain on a path, without a test if a score is undefined or its variation is not known."""
    for record in (above, below):
        if record.score is None or record.score.value is None:
            return Gain(reason=f"the score of {record.model} is undefined")
    first = above.as_score()
    second = below.as_score()
    if withheld or lacks_items(first) or lacks_items(second):
        value = gain(first, second, at_least).value
        words = withheld or "a record lacks the variation of the score by item"
        return Gain(value, reason=words)
    return gain(first, second, at_least)


def _evidence(
    claim: ClaimSpec,
    records: Mapping[tuple[str, str], Record],
    withheld: Mapping[str, str],
) -> str:
    """Return the hash of everything that the tests of a claim depend on."""
    contents = [
        [benchmark, model, record.payload()]
        for (benchmark, model), record in sorted(records.items())
    ]
    without_test = sorted(set(withheld) & set(claim.benchmarks))
    return sha256_of([METHOD, VERSION, spec_sha256(claim), contents, without_test])


def _stored(path: Tried) -> LookedPath:
    low, high = path.gain.interval or (None, None)
    return LookedPath(
        benchmark=path.benchmark,
        above=path.above,
        below=path.below,
        gain=path.gain.value,
        low=low,
        high=high,
        p=path.gain.p_above,
        reason=path.gain.reason,
    )


def _pooled(paths: tuple[Tried, ...]) -> Pooled | None:
    """Return the mean gain over data sets, each with the mean of its paths; None if scales differ or a test is missing."""
    by_dataset: dict[str, list[Gain]] = {}
    for path in paths:
        by_dataset.setdefault(path.dataset, []).append(path.gain)
    if len(by_dataset) < 2 or len({path.scale for path in paths}) > 1:
        return None
    effects = []
    errors = []
    for gains in by_dataset.values():
        known = [
            (one.value, one.uncertainty)
            for one in gains
            if one.value is not None and one.uncertainty is not None
        ]
        if len(known) < len(gains):
            return None
        effects.append(sum(value for value, _ in known) / len(known))
        errors.append(_mean_of([varies for _, varies in known]).error)
    if min(errors) > 0:
        return pooled(effects, errors)
    return None


def _mean_of(parts: list[Uncertainty]) -> Uncertainty:
    """Return the uncertainty of a mean of gains, which share their items."""
    return total([part * (1 / len(parts)) for part in parts])
