"""Why two scores differ: the fields in which their definitions differ, and by how much each moves the score.

A score follows from its definition: model, data, selection, paradigm, metric, splits, ceiling, seed. Of two definitions,
every mixture of their fields is one, too. The share of a field is the mean change of the score when it is switched from
the first definition to the second, over all orders in which the fields can be switched [shapley1953], so that the shares
add up to the difference.
"""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import numpy as np
import yaml

from neuroledger.display import card
from neuroledger.engine.evaluate import headline_of
from neuroledger.engine.overrides import in_compat, resolve
from neuroledger.engine.record import Record
from neuroledger.engine.session import Request, Session
from neuroledger.errors import (
    NeuroLedgerError,
    RequestError,
    is_about_machine,
)
from neuroledger.spec.base import DESCRIPTIVE, Override, Spec, id_of
from neuroledger.spec.catalog import Catalog, open_catalog
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.spec.load import read_spec
from neuroledger.stats.score import Score
from neuroledger.stats.uncertainty import Uncertainty, total
from neuroledger.store.git_trees import catalog_at

__all__ = [
    "Definition",
    "Explanation",
    "Mixtures",
    "Share",
    "definition_at",
    "definition_of",
    "explain",
    "shares_of",
]

EXACT: Final = 6
"""The number of fields up to which all mixtures are scored: 64."""
ORDERS: Final = 24
"""The number of orders that are drawn for more fields."""
UNRELATED: Final = frozenset({*DESCRIPTIVE, "id", "version", "controls", "unavailable"})
"""Fields of specs that do not determine a score."""
MIXTURE: Final = "mixture"


@dataclass(frozen=True)
class Definition:
    """What a score follows from.

    Attributes
    ----------
    name
        The model and the benchmark, for people.
    fields
        Plain values by the name of the field, such as ``metric.splits``; a missing field has the default of its kind.
    """

    name: str
    fields: Mapping[str, Any]


@dataclass(frozen=True)
class Share:
    """How much a field moves the score from the first definition to the second.

    Attributes
    ----------
    field
        Its name, or several that can only change together.
    first, second
        Its values.
    value, low, high
        The share with its 95 % interval over new items; the ends are None if it is not known.
    sampling_error
        Standard error of the share by the orders that were drawn; 0 if all were computed.
    """

    field: str
    first: object
    second: object
    value: float
    low: float | None
    high: float | None
    sampling_error: float = 0.0


@dataclass(frozen=True)
class Explanation:
    """The shares of all fields that differ, which add up to the difference of two scores.

    Attributes
    ----------
    first, second
        The names of both definitions.
    first_value, second_value
        Their scores, computed here.
    published
        A figure that the second score should equal, and :attr:`left` its difference from it.
    shares
        One for each field that differs, the largest first.
    """

    first: str
    second: str
    first_value: float
    second_value: float
    shares: tuple[Share, ...]
    published: float | None = None

    @property
    def difference(self) -> float:
        """What is explained: the second value, or the published figure, minus the first."""
        end = self.second_value if self.published is None else self.published
        return end - self.first_value

    @property
    def left(self) -> float:
        """What no field explains: a published figure minus the score by its definition."""
        if self.published is None:
            return 0.0
        return self.published - self.second_value

    def __str__(self) -> str:
        end = self.second_value if self.published is None else self.published
        stated = ", published" if self.published is not None else ""
        lines = [
            f"{self.first}: {self.first_value:.4g}",
            f"{self.second}: {end:.4g}{stated}",
            f"difference {self.difference:+.4g}, of which",
        ]
        lines += [
            f"  {share.value:+.4g}{_interval(share)}  {_change(share)}"
            for share in self.shares
        ]
        if not self.shares:
            lines.append("  nothing: both have the same definition")
        if self.published is not None:
            lines.append(
                f"  {self.left:+.4g}  is left: no field of the definition explains it"
            )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [
            (_change(share), f"{share.value:+.4g}{_interval(share)}")
            for share in self.shares
        ]
        if self.published is not None:
            rows.append(("left", f"{self.left:+.4g}"))
        return card(f"{self.first} → {self.second}: {self.difference:+.4g}", rows)


def definition_of(
    catalog: Catalog,
    model: str,
    benchmark: str,
    *,
    seed: int = 0,
    compat: str | None = None,
) -> Definition:
    """Return what the score of a model on a benchmark follows from, by the specs of a catalogue.

    `compat` is the mode of another project in which metric and ceiling are computed, instead of that of the benchmark.

    Raises
    ------
    RequestError
        There is no such model or benchmark, or the benchmark has no score here.
    """
    spec = catalog.benchmark(benchmark)
    if compat is not None:
        spec = BenchmarkSpec.model_validate({**spec.model_dump(), "compat": compat})
    fields: dict[str, Any] = {"seed": seed, "model": model}
    for name, value in _plain(spec).items():
        if name == "paradigm":
            fields |= _component("paradigm", value)
        elif name not in ("metric", "metrics", "ceiling"):
            fields[name] = value
    metric = _comparison(catalog, "metrics", spec.all_metrics[0], spec.compat)
    fields |= {f"metric.{name}": value for name, value in metric.items()}
    if spec.ceiling is not None:
        fields["ceiling"] = _comparison(catalog, "ceilings", spec.ceiling, spec.compat)
    for name, value in _plain(catalog.model(model)).items():
        fields[f"model.{name}"] = value
    return Definition(f"{model} on {benchmark}", fields)


def explain(
    first: Record | Definition | tuple[str, str],
    second: Record | Definition | tuple[str, str],
    *,
    published: float | None = None,
    catalog: Catalog | None = None,
    seed: int = 0,
) -> Explanation:
    """Explain the difference of two scores by the fields in which their definitions differ.

    Parameters
    ----------
    first, second
        Records, pairs of a model and a benchmark, or definitions. Of a record, its model, benchmark and seed are taken,
        and the present specs.
    published
        A published figure for the second definition: what its score lacks is stated as what is left.
    seed
        Of the request, for pairs, and of the orders that are drawn for more than six fields.

    Raises
    ------
    RequestError
        A definition is unknown.
    NeuroLedgerError
        One of the two scores is undefined, or something is missing here; the message says what.

    Examples
    --------
    >>> import neuroledger as nl
    >>> benchmark = "Kriegeskorte2008.monkeyIT-rdm"
    >>> found = nl.why(("kriegeskorte92.hmax", benchmark), ("kriegeskorte92.v1", benchmark))
    >>> [share.field for share in found.shares]
    ['model']
    >>> round(found.difference, 3)
    -0.171
    """
    catalog = catalog or open_catalog()
    ends = [_definition(catalog, end, seed) for end in (first, second)]
    with tempfile.TemporaryDirectory() as folder:
        scorer = _Mixtures(catalog, ends[0], ends[1], Path(folder))
        names = _changing_alone(scorer, _different(ends[0], ends[1]))
        shares = shares_of(scorer, names, seed)
        values = [scorer.score(chosen).value for chosen in (frozenset(), _all(names))]
    ordered = sorted(shares, key=lambda share: -abs(share.value))
    return Explanation(
        ends[0].name, ends[1].name, values[0], values[1], tuple(ordered), published
    )


def definition_at(
    catalog: Catalog, commit: str, model: str, benchmark: str, *, seed: int = 0
) -> Definition:
    """Return what a score followed from at a commit of the repository, by the specs of that commit.

    Raises
    ------
    RequestError
        There is no such commit, or it had no such model or benchmark.
    """
    with catalog_at(catalog, commit) as past:
        then = definition_of(past, model, benchmark, seed=seed)
    return replace(then, name=f"{then.name} at {commit[:10]}")


Group = tuple[str, ...]
"""Fields that change together."""


class Mixtures(Protocol):
    """What a difference is explained of: two definitions, and the scores of their mixtures."""

    first: Definition
    second: Definition

    def score(self, switched: frozenset[str]) -> Score:
        """Return the score with these fields of the second definition and all others of the first."""
        ...


class _Mixtures:
    """The scores of mixtures of two definitions, each computed once."""

    def __init__(
        self, catalog: Catalog, first: Definition, second: Definition, folder: Path
    ) -> None:
        self.catalog = catalog
        self.first = first
        self.second = second
        self.folder = folder
        self._known: dict[frozenset[str], Score] = {}
        self._shared = Session(catalog)

    def score(self, switched: frozenset[str]) -> Score:
        """Return the score with these fields of the second definition and all others of the first."""
        if switched not in self._known:
            self._known[switched] = self._computed(switched)
        return self._known[switched]

    def _computed(self, switched: frozenset[str]) -> Score:
        names = {*self.first.fields, *self.second.fields}
        chosen = {
            name: (self.second if name in switched else self.first).fields.get(name)
            for name in names
        }
        fields = {name: value for name, value in chosen.items() if value is not None}
        catalog, model = self._catalog_of(fields)
        session = Session(catalog, Request(seed=int(fields["seed"])))
        # What is read and validated does not depend on the mixture.
        session.valid = self._shared.valid
        session.datasets = self._shared.datasets
        return headline_of(session, catalog.benchmark(MIXTURE), model)

    def _catalog_of(self, fields: Mapping[str, Any]) -> tuple[Catalog, str]:
        """Return the catalogue with the mixture as a benchmark, and the id of its model."""
        parts: dict[str, dict[str, object]] = {
            "metrics": {},
            "models": {},
            "benchmarks": {},
        }
        prefixes = {"metric.": "metrics", "model.": "models"}
        paradigm: dict[str, object] = {}
        for name, value in fields.items():
            kind = prefixes.get(f"{name.partition('.')[0]}.", "benchmarks")
            if name.startswith("paradigm."):
                paradigm[name.removeprefix("paradigm.")] = value
            elif "." in name:
                parts[kind][name.partition(".")[2]] = value
            elif name not in ("seed", "model", "ceiling"):
                parts[kind][name] = value
        model = str(fields["model"])
        catalog = self._with(self.catalog, "metrics", MIXTURE, parts["metrics"])
        if self._models_differ:
            catalog = self._with(catalog, "models", model, parts["models"])
        if "ceiling" in fields:
            catalog = self._with(catalog, "ceilings", MIXTURE, fields["ceiling"])
            parts["benchmarks"]["ceiling"] = MIXTURE
        benchmark = parts["benchmarks"] | {"paradigm": paradigm, "metric": MIXTURE}
        benchmark["parent"] = MIXTURE
        return self._with(catalog, "benchmarks", MIXTURE, benchmark), model

    @property
    def _models_differ(self) -> bool:
        """Whether both definitions are of one model, whose spec changed."""
        names = {*self.first.fields, *self.second.fields}
        first = self.first.fields
        second = self.second.fields
        return first["model"] == second["model"] and any(
            first.get(name) != second.get(name)
            for name in names
            if name.startswith("model.")
        )

    def _with(
        self, catalog: Catalog, kind: str, id: str, plain: Mapping[str, object]
    ) -> Catalog:
        """Return the catalogue with a spec made of plain fields."""
        content = {"id": id, "version": 1, "title": "A mixture of two definitions"}
        folder = self.folder / kind
        folder.mkdir(exist_ok=True)
        path = folder / f"{id}.yaml"
        path.write_text(yaml.safe_dump(content | dict(plain)), encoding="utf-8")
        spec, document = read_spec(path, kind)
        return catalog.with_spec(kind, id, spec, document, path)


def _definition(
    catalog: Catalog, end: Record | Definition | tuple[str, str], seed: int
) -> Definition:
    if isinstance(end, Definition):
        return end
    if isinstance(end, Record):
        recorded = end.request.seed
        return definition_of(catalog, end.model, end.benchmark, seed=recorded)
    model, benchmark = end
    return definition_of(catalog, model, benchmark, seed=seed)


def _comparison(
    catalog: Catalog,
    kind: Literal["metrics", "ceilings"],
    override: str | Override,
    compat: str | None,
) -> dict[str, object]:
    """The fields of a metric or ceiling, with what the benchmark and its compat mode change."""
    id = id_of(override)
    known = catalog.metric(id) if kind == "metrics" else catalog.ceiling(id)
    plain = _plain(resolve(kind, override, catalog, in_compat(known, compat))[0])
    plain.pop("compat", None)
    return plain


def _plain(spec: Spec) -> dict[str, Any]:
    """The fields of a spec that determine scores, without defaults."""
    plain = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {name: value for name, value in plain.items() if name not in UNRELATED}


def _component(name: str, value: Mapping[str, object]) -> dict[str, object]:
    """The fields of a component, each by itself."""
    return {f"{name}.{field}": content for field, content in value.items()}


def _different(first: Definition, second: Definition) -> list[str]:
    """The names of fields that differ; those of the model are one with it if the model is another."""
    names = sorted({*first.fields, *second.fields})
    found = [
        name for name in names if first.fields.get(name) != second.fields.get(name)
    ]
    if "model" in found:
        return [name for name in found if not name.startswith("model.")]
    return found


def _changing_alone(scorer: _Mixtures, names: Sequence[str]) -> list[Group]:
    """The fields in groups: those that have no score when they change alone, in either direction, change together."""
    dependent = [name for name in names if not _changes_alone(scorer, name, names)]
    alone: list[Group] = [(name,) for name in names if name not in dependent]
    if dependent:
        return [*alone, tuple(dependent)]
    return alone


def _changes_alone(scorer: _Mixtures, name: str, names: Sequence[str]) -> bool:
    """Whether the score is defined with one field of the other definition, in both directions."""
    for switched in (frozenset({name}), frozenset(names) - {name}):
        try:
            scorer.score(switched)
        except NeuroLedgerError as error:
            if is_about_machine(error) and not isinstance(error, RequestError):
                raise
            return False
    return True


def _all(groups: Sequence[Group]) -> frozenset[str]:
    return frozenset(itertools.chain.from_iterable(groups))


def shares_of(scorer: Mixtures, groups: Sequence[Group], seed: int) -> list[Share]:
    """Return the share of each group of fields: a weighted sum of the scores of mixtures."""
    if len(groups) <= EXACT:
        return [_share(scorer, group, _weights(group, groups)) for group in groups]
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(len(groups)).tolist() for _ in range(ORDERS)]
    shares = []
    for number, group in enumerate(groups):
        steps = []
        for order in orders:
            before = _all([groups[other] for other in order[: order.index(number)]])
            steps.append((before, before | frozenset(group)))
        weights: dict[frozenset[str], float] = {}
        for before, after in steps:
            weights[after] = weights.get(after, 0.0) + 1 / ORDERS
            weights[before] = weights.get(before, 0.0) - 1 / ORDERS
        moves = [scorer.score(b).value - scorer.score(a).value for a, b in steps]
        error = float(np.std(moves, ddof=1) / math.sqrt(ORDERS))
        shares.append(replace(_share(scorer, group, weights), sampling_error=error))
    return shares


def _weights(group: Group, groups: Sequence[Group]) -> dict[frozenset[str], float]:
    """The weight of each mixture in the share of a group, over all orders [shapley1953]."""
    others = [other for other in groups if other != group]
    count = len(groups)
    weights: dict[frozenset[str], float] = {}
    for size in range(count):
        weight = math.factorial(size) * math.factorial(count - size - 1)
        for chosen in itertools.combinations(others, size):
            before = _all(chosen)
            weights[before] = -weight / math.factorial(count)
            weights[before | frozenset(group)] = weight / math.factorial(count)
    return weights


def _share(
    scorer: Mixtures, group: Group, weights: Mapping[frozenset[str], float]
) -> Share:
    scores = [(weight, scorer.score(mixture)) for mixture, weight in weights.items()]
    value = sum(weight * score.value for weight, score in scores)
    varies = _variation(scores)
    low, high = (None, None) if varies is None else varies.interval(value)
    first, second = (
        _joined([end.fields.get(name) for name in group])
        for end in (scorer.first, scorer.second)
    )
    return Share(" and ".join(group), first, second, value, low, high)


def _variation(scores: Sequence[tuple[float, Score]]) -> Uncertainty | None:
    """How a weighted sum of scores varies over items that they share; None if that is not known."""
    parts = [
        score.uncertainty * weight
        for weight, score in scores
        if score.uncertainty is not None
    ]
    if len(parts) < len(scores) or len({part.factors for part in parts}) > 1:
        return None
    # A share is a difference: it has no limits of its own.
    return replace(total(parts), scale="identity")


def _joined(values: Sequence[object]) -> object:
    if len(values) == 1:
        return values[0]
    return tuple(values)


def _interval(share: Share) -> str:
    if share.low is None:
        text = ""
    else:
        text = f" [{share.low:+.3g}, {share.high:+.3g}]"
    if share.sampling_error:
        drawn = f" ± {share.sampling_error:.1g}"
    else:
        drawn = ""
    return text + drawn


def _change(share: Share) -> str:
    first, second = _what_differs(share.first, share.second)
    return f"{share.field}: {_short(first)} → {_short(second)}"


def _what_differs(first: object, second: object) -> tuple[object, object]:
    """Two values without what they share: of mappings, the entries that differ."""
    if not (isinstance(first, Mapping) and isinstance(second, Mapping)):
        return first, second
    names = [
        name for name in {**first, **second} if first.get(name) != second.get(name)
    ]
    pairs = {name: _what_differs(first.get(name), second.get(name)) for name in names}
    return (
        {name: one for name, (one, _) in pairs.items() if one is not None},
        {name: other for name, (_, other) in pairs.items() if other is not None},
    )


def _short(value: object) -> str:
    """A value in few words."""
    if value is None:
        return "default"
    text = yaml.safe_dump(value, default_flow_style=True, width=1000).strip()
    text = text.removesuffix("...").strip()
    if len(text) <= 60:
        return text
    return f"{text[:57]}…"
