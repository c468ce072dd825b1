"""claims: what the records say about statements that one model is above another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from neuroledger.cli.options import Json, Root, argument, flag
from neuroledger.cli.output import PENDING, SUCCESS
from neuroledger.display import say, say_json, say_table
from neuroledger.errors import RequestError

if TYPE_CHECKING:
    from neuroledger.engine.claims.standing import Standing

__all__ = ["claims"]

COLUMNS = ("claim", "status", "paths above", "look", "since", "title")


def claims(
    ids: Annotated[
        list[str] | None,
        argument("CLAIM", "ids of claims (default: all, as a table)", ids=("claims",)),
    ] = None,
    bibtex: Annotated[
        bool, flag("--bibtex", "print BibTeX entries that cite the claims")
    ] = False,
    allow_pending: Annotated[
        bool, flag("--allow-pending", "exit 0 even if a claim is pending")
    ] = False,
    json: Json = False,
    root: Root = None,
) -> int:
    """Test claims on the records, and enter each look at changed records in results/claims.

    JSON: a list of claims, each with claim, version, title, status, look, level, agreeing, paths (benchmark, above, below,
    gain, low, high, p), pooled, since (a commit) and pending (record, reason, command).
    """
    from neuroledger.engine.claims.standing import look_at
    from neuroledger.engine.outcome import pending_lines
    from neuroledger.report.claims import bibtex as entry
    from neuroledger.report.claims import claim_text, plain_claim
    from neuroledger.spec.catalog import open_catalog

    if json and bibtex:
        raise RequestError("give either --json or --bibtex")
    catalog = open_catalog(root)
    found = [look_at(catalog, id) for id in ids or catalog.own("claims")]
    if json:
        say_json(list(map(plain_claim, found)))
    elif bibtex:
        say("\n\n".join(entry(one) for one in found))
    elif ids:
        say("\n\n".join(claim_text(one) for one in found))
    else:
        _say_all(found)
    pending = [item for one in found for item in one.pending]
    if not json and not bibtex:
        for line in pending_lines(pending):
            say(line)
    if pending and not allow_pending:
        return PENDING
    return SUCCESS


def _say_all(found: list[Standing]) -> None:
    from neuroledger.report.claims import since, words_of

    if not found:
        say("no claims: write one to specs/claims/ID.yaml")
    rows = [
        [
            one.claim.id,
            words_of(one),
            "" if one.look is None else f"{one.agreeing} of {len(one.paths)}",
            "" if one.look is None else str(one.look.number),
            since(one) or "–",
            one.claim.title,
        ]
        for one in found
    ]
    say_table(COLUMNS, rows)
