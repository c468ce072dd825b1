"""A check of a component, and what the checks of a metric or ceiling share: its spec, its inputs and its score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import xarray as xr

from neuroledger.engine.bound_metric import BoundCeiling, BoundMetric, ceiling, metric
from neuroledger.errors import ContractError, NeuroLedgerError, about_pair
from neuroledger.spec.catalog import Catalog, Entry
from neuroledger.spec.components import Ceiling, Example, Metric, Registered
from neuroledger.spec.kinds import CeilingSpec, MetricSpec
from neuroledger.stats.score import Score
from neuroledger.stats.splits import Split, draw
from neuroledger.testing.inputs import example_of

__all__ = ["Case", "Check", "Declared", "score_cases"]

SEED = 20260101


@dataclass(frozen=True)
class Check:
    """One check of one component; call it.

    Attributes
    ----------
    kind, name, spec
        The component, and the id of the spec of a metric or ceiling.
    code
        A key of ``neuroledger.errors.CODES``.
    """

    kind: str
    name: str
    spec: str
    code: str
    run: Callable[[], None] = field(repr=False, compare=False)

    @property
    def where(self) -> str:
        """The component, and its spec if that has another name."""
        if self.spec not in ("", self.name):
            of_spec = f" ({self.spec})"
        else:
            of_spec = ""
        return f"{self.kind} {self.name}{of_spec}"

    def __call__(self) -> None:
        """Run the check.

        Raises
        ------
        ContractError
            The component does not keep this part of its contract.
        PendingError
            Something is missing on this machine.
        """
        try:
            self.run()
        except ContractError:
            raise
        except Exception as error:
            if isinstance(error, NeuroLedgerError) and not about_pair(error):
                raise
            raise ContractError(
                f"its example raises {type(error).__name__}: {error}"
            ) from error

    def __str__(self) -> str:
        part = self.code.partition(".")[2]
        return "-".join(filter(None, (self.kind, self.spec or self.name, part)))


@dataclass(frozen=True, eq=False)
class Declared:
    """A component, and the valid specs that name it.

    Attributes
    ----------
    field
        The field of these specs that names the component; empty if none can.
    """

    component: Registered
    catalog: Catalog
    field: str = ""
    entries: Sequence[Entry] = ()


@dataclass(frozen=True, eq=False)
class Case:
    """A metric or ceiling as a spec declares it, with small inputs.

    Attributes
    ----------
    bound, example
        The metric or ceiling with its parameters, and the inputs.
    """

    bound: BoundMetric | BoundCeiling
    example: Example

    @property
    def id(self) -> str:
        """The id of the spec."""
        return self.bound.spec.id

    @property
    def component(self) -> Metric | Ceiling:
        """The registered function and what it declares."""
        return self.bound.component

    @property
    def draws_randomly(self) -> bool:
        """Whether the order of rows decides what is drawn at random."""
        seeded = {"seed", "halves", "repetitions", "procedure"}
        return self.component.takes("rng") or bool(
            seeded & set(self.component.parameters.model_fields)
        )

    @property
    def reference(self) -> int:
        """The position of the input whose rows splits divide."""
        if self.bound.parameters.get("reverse") is True:
            return 0
        return -1

    @cached_property
    def splits(self) -> list[Split] | None:
        """Train and test rows of the reference, if a metric takes splits; a ceiling draws its own."""
        if not self.component.takes("splits") or not isinstance(
            self.bound, BoundMetric
        ):
            return None
        rows = self.example.inputs[self.reference]
        rule = self.bound.spec.splits
        if rule is None or rule.name in ("predefined", "coordinate"):
            half = np.arange(rows.sizes["presentation"]) % 4 > 0
            return [Split(np.flatnonzero(half), np.flatnonzero(~half))]
        return draw(rule, rows)

    def score(
        self, inputs: tuple[Any, ...], splits: list[Split] | None = None
    ) -> Score:
        """Return the score of some inputs."""
        if isinstance(self.bound, BoundMetric):
            source, target = inputs
            return self.bound(source, target, splits=splits or self.splits)
        return self.bound(*inputs)

    @cached_property
    def scored(self) -> Score:
        """The score of the example."""
        return self.score(self.example.inputs)

    def changed(
        self, change: Callable[[xr.DataArray, int], xr.DataArray]
    ) -> tuple[Any, ...]:
        """Return the inputs, each assembly changed; ``change`` gets the assembly and its position."""
        return tuple(
            change(each, at) if isinstance(each, xr.DataArray) else each
            for at, each in enumerate(self.example.inputs)
        )

    @property
    def assemblies(self) -> bool:
        """Whether every input is an assembly with presentations."""
        return all(
            isinstance(each, xr.DataArray) and "presentation" in each.dims
            for each in self.example.inputs
        )


def score_cases(declared: Declared) -> list[Case]:
    """Return one case for each spec of a metric or ceiling; other components have none."""
    component = declared.component
    if not isinstance(component, Metric | Ceiling):
        return []
    return [
        _case(component, entry.spec, declared.catalog)
        for entry in declared.entries
        if isinstance(entry.spec, MetricSpec | CeilingSpec)
    ]


def _case(
    component: Metric | Ceiling, spec: MetricSpec | CeilingSpec, catalog: Catalog
) -> Case:
    rng = np.random.default_rng(SEED)
    example = example_of(component, rng, spec.compare.parameters)
    bind = metric if isinstance(component, Metric) else ceiling
    return Case(bind(spec.id, catalog=catalog, **example.parameters), example)
