"""Whom a spec owes something: what it cites is in the bibliography, and its licence is one that can be looked up."""

from __future__ import annotations

from collections.abc import Iterator

from neuroledger.spec.base import Spec
from neuroledger.spec.bibliography import Bibliography
from neuroledger.spec.kinds import DatasetSpec, ModelSpec

__all__ = ["attribution_problems"]


def attribution_problems(spec: Spec, cited: Bibliography) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """Where, what and how to mend, of each citation and of the licence."""
    for number, key in enumerate(spec.cite):
        if key not in cited.references:
            words = f"citation {key!r} is not in specs/references.bib"
            yield ("cite", number), words, "add its BibTeX entry there"
    if isinstance(spec, DatasetSpec | ModelSpec) and spec.license is not None:
        yield from _licence_problems(spec.license)


def _licence_problems(given: str) -> Iterator[tuple[tuple[str | int, ...], str, str]]:
    """A licence is an expression of SPDX, or `LicenseRef-` and a name of one's own."""
    from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

    try:
        written = str(canonicalize_license_expression(given))
    except InvalidLicenseExpression:
        hint = (
            "take an id of https://spdx.org/licenses, or LicenseRef-NAME and a license_note for other terms"
        )
        yield ("license",), f"{given!r} is no SPDX licence", hint
        return
    if written != given:
        yield ("license",), f"SPDX writes {given!r} as {written!r}", f"license: {written}"
