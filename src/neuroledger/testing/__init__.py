"""Contract checks of components, for this package and for authors of plugins, as scikit-learn has for estimators.

Each check raises :class:`neuroledger.errors.ContractError` with what is wrong. They need no test framework::

    @pytest.mark.parametrize("check", contract_checks("metric", "labkit_drive"), ids=str)
    def test_contract(check):
        check()
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from neuroledger.errors import (
    ContractError,
    Finding,
    NeuroLedgerError,
    RequestError,
)
from neuroledger.spec import registry
from neuroledger.spec.catalog import Catalog, open_definitions
from neuroledger.spec.components import Ceiling, Metric
from neuroledger.testing.case import Check, Declared, score_cases
from neuroledger.testing.component_checks import (
    COMPONENT_CHECKS,
    declared_components,
)
from neuroledger.testing.score_checks import SCORE_CHECKS, TRACE_CHECKS

__all__ = [
    "Check",
    "ContractError",
    "check_builder",
    "check_ceiling",
    "check_component",
    "check_metric",
    "check_paradigm",
    "check_reader",
    "contract_checks",
    "contract_findings",
]

KINDS: Final = (
    "metric",
    "ceiling",
    "paradigm",
    "builder",
    "reader",
    "stimuli",
    "signature",
)


def contract_checks(
    kind: str | None = None, name: str | None = None, catalog: Catalog | None = None
) -> list[Check]:
    """Return the checks of one component, of a kind, or of every registered component.

    A metric or ceiling is checked with each spec of the catalogue that names it; ``str`` of a check is its name.

    Parameters
    ----------
    kind
        ``metric``, ``ceiling``, ``paradigm``, ``builder``, ``reader``, ``stimuli`` or ``signature``; default: all.
    name
        The name under which the component is registered; default: all of the kind.
    catalog
        The specs; default: those that are shipped, those of plugins and those of the repository of this folder.

    Raises
    ------
    RequestError
        There is no such kind or component, or no spec of a metric or ceiling.
    """
    if kind is not None and kind not in KINDS:
        raise RequestError(f"no kind {kind!r}: choose one of {', '.join(KINDS)}")
    catalog = catalog or open_definitions()
    checks: list[Check] = []
    for each in KINDS if kind is None else (kind,):
        known = declared_components(each, catalog)
        if name is not None:
            registry.get(each, name)  # suggests similar names
            known = {name: known[name]}
        for declared in known.values():
            checks += _checks_of(declared)
    return checks


def _checks_of(declared: Declared) -> Iterator[Check]:
    component = declared.component
    kind = component.kind
    name = component.name
    for code, check in COMPONENT_CHECKS[kind].items():
        yield Check(kind, name, "", code, partial(check, declared))
    if not isinstance(component, Metric | Ceiling):
        return
    cases = score_cases(declared)
    if not cases:
        raise RequestError(
            f"{kind} {name!r} has no spec, which declares its scale: add specs/{kind}s/{name}.yaml"
        )
    checks = TRACE_CHECKS if component.input == "trace" else SCORE_CHECKS
    for case in cases:
        for code, of_score in checks.items():
            yield Check(kind, name, case.id, code, partial(of_score, case))


def check_component(kind: str, name: str, catalog: Catalog | None = None) -> None:
    """Run every check of a component.

    Raises
    ------
    ContractError
        Some fail; the message lists all of them with their codes.
    """
    findings = [
        each
        for check in contract_checks(kind, name, catalog)
        if (each := _finding(check)) is not None
    ]
    if findings:
        raise ContractError("\n".join(map(str, findings)))


def check_metric(name: str) -> None:
    """Run every check of a metric, see :func:`check_component`."""
    check_component("metric", name)


def check_ceiling(name: str) -> None:
    """Run every check of a ceiling, see :func:`check_component`."""
    check_component("ceiling", name)


def check_paradigm(name: str) -> None:
    """Run every check of a paradigm, see :func:`check_component`."""
    check_component("paradigm", name)


def check_builder(name: str) -> None:
    """Run every check of a model builder, see :func:`check_component`."""
    check_component("builder", name)


def check_reader(name: str) -> None:
    """Run every check of a reader, see :func:`check_component`."""
    check_component("reader", name)


def contract_findings(catalog: Catalog) -> list[Finding]:
    """Return the failed checks of all components of other distributions, as `neuroledger check` shows them."""
    findings: list[Finding] = []
    for kind in KINDS:
        others = set(registry.names(kind)) - set(registry.names(kind, plugins=False))
        if not others:
            continue
        known = declared_components(kind, catalog)
        for name in sorted(others):
            findings += _findings_of(known[name])
    return findings


def _findings_of(declared: Declared) -> Iterator[Finding]:
    """Yield what the checks of a component find; a metric without a spec or inputs is one finding."""
    try:
        checks = list(_checks_of(declared))
    except RequestError as error:
        where = f"{declared.component.kind} {declared.component.name}"
        yield Finding("spec.component", "error", where, str(error))
        return
    for check in checks:
        found = _finding(check)
        if found is not None:
            yield found


def _finding(check: Check) -> Finding | None:
    """Run a check; return what it found, or None."""
    try:
        check()
    except ContractError as error:
        return Finding(check.code, "error", check.where, str(error))
    except NeuroLedgerError as error:
        return Finding(check.code, "note", check.where, f"not checked: {error}")
    return None
