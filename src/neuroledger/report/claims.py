"""Claims in words, as a badge, and as a BibTeX entry."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from markupsafe import Markup, escape

from neuroledger.engine.claims.standing import Standing, Tried
from neuroledger.stats.random_effects import Pooled

__all__ = [
    "TONES",
    "badge",
    "bibtex",
    "claim_text",
    "over_datasets",
    "plain_claim",
    "since",
    "words_of",
]

WORDS: Final[Mapping[str, str]] = {
    "supported": "supported",
    "not_distinguishable": "not distinguishable",
    "contradicted": "contradicted",
    "pending": "pending",
}
# Classes of the badges of pages.
TONES: Final[Mapping[str, str]] = {
    "supported": "good",
    "not_distinguishable": "",
    "contradicted": "bad",
    "pending": "warn",
}
# Dark enough for white text.
COLOURS: Final[Mapping[str, str]] = {
    "supported": "#1b6e3c",
    "not_distinguishable": "#5a5f66",
    "contradicted": "#a3262a",
    "pending": "#7a5900",
}
GREY: Final = "#2f3338"
LETTER: Final = 6.6
"""Mean width of a letter of a badge, in pixels."""


def words_of(found: Standing) -> str:
    """Return the status of a claim in words."""
    return WORDS[found.status]


def since(found: Standing) -> str:
    """Return the commit since which a claim has its status, with its date; empty if it is not committed or not known."""
    turn = found.turn
    if turn is None or turn.status != found.status:
        return ""
    return f"{turn.commit[:10]} ({turn.date})"


def claim_text(found: Standing) -> str:
    """Format a claim with its paths and the mean over data sets."""
    claim = found.claim
    head = f"{claim.id}, version {claim.version}: {claim.title}"
    lines = [head, f"  {words_of(found)}{_details(found)}", ""]
    lines += [f"  {_path(path)}" for path in found.paths]
    if found.pooled is not None:
        lines += ["", *(f"  {line}" for line in over_datasets(found))]
    return "\n".join(lines)


def _details(found: Standing) -> str:
    if found.look is None:
        return ""
    if found.claim.at_least:
        at_least = f" by at least {found.claim.at_least:g}"
    else:
        at_least = ""
    count = f"{found.agreeing} of {len(found.paths)} paths are above{at_least}"
    look = f"look {found.look.number}, each path tested at {found.look.level:.2g}"
    commit = since(found)
    return f": {count}; {look}" + (f"; since {commit}" if commit else "")


def _path(path: Tried) -> str:
    found = path.gain
    if found.value is None:
        value = "undefined"
    else:
        value = f"{found.value:+.3f}"
    interval = found.interval
    if interval is None:
        ends = ""
    else:
        ends = f" [{interval[0]:+.3f}, {interval[1]:+.3f}]"
    test = found.reason or f"p = {found.p_above:.2g}"
    return f"{value}{ends}  {test}  {path.benchmark}: {path.above} above {path.below}"


def over_datasets(found: Standing) -> list[str]:
    """Return the mean over data sets in words; empty if there is none."""
    if found.pooled is None:
        return []
    return list(_pooled(found.pooled))


def _pooled(mean: Pooled) -> Iterator[str]:
    yield (
        f"mean over {mean.datasets} data sets {mean.mean:+.3f} [{mean.low:+.3f}, {mean.high:+.3f}], "
        f"I² = {mean.inconsistency:.0%}, standard deviation between data sets {mean.between:.3f}"
    )
    if mean.predicted is not None:
        low, high = mean.predicted
        yield f"95 % prediction interval of a new data set [{low:+.3f}, {high:+.3f}]"


def plain_claim(found: Standing) -> dict[str, object]:
    """Return a claim as plain data."""
    turn = found.turn
    is_committed = turn is not None and turn.status == found.status
    paths = [] if found.look is None else found.look.paths
    return {
        "claim": found.claim.id,
        "version": found.claim.version,
        "title": found.claim.title,
        "status": found.status,
        "look": None if found.look is None else found.look.number,
        "level": None if found.look is None else found.look.level,
        "agreeing": found.agreeing,
        "paths": [path.model_dump(mode="json") for path in paths],
        "pooled": None if found.pooled is None else vars(found.pooled),
        "since": turn.commit if turn is not None and is_committed else None,
        "pending": [
            {"record": name, "reason": what.reason, "command": what.command}
            for name, what in found.pending
        ],
    }


def bibtex(found: Standing) -> str:
    """Return a BibTeX entry that cites a claim with its version, status and commit."""
    claim = found.claim
    commit = since(found)
    note = f"{words_of(found)}{f' since commit {commit}' if commit else ''}"
    if found.turn is not None and commit:
        year = found.turn.date[:4]
    else:
        year = ""
    fields = {
        "title": f"{{{_escaped(claim.title)}}}",
        "author": "{The NeuroLedger maintainers}",
        "howpublished": f"Claim {_escaped(claim.id)}, version {claim.version}, checked by \\texttt{{neuroledger claims}}",
        "note": _escaped(note),
        "year": year,
    }
    lines = [f"  {name} = {{{value}}}," for name, value in fields.items() if value]
    key = re.sub(r"[^\w.-]", "-", claim.id)
    return "\n".join([f"@misc{{claim.{key},", *lines, "}"])


def _escaped(text: str) -> str:
    return re.sub(r"([&%$#_{}])", r"\\\1", text)


def badge(found: Standing) -> Markup:
    """Draw the id and the status of a claim as a badge."""
    left = found.claim.id
    right = words_of(found)
    widths = [len(text) * LETTER + 12 for text in (left, right)]
    whole = sum(widths)
    label = escape(f"claim {left}: {right}")
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{whole:.0f}" height="20" role="img" aria-label="{label}">'
        f"<title>{label}</title>"
    )
    boxes = (
        f'<rect width="{whole:.0f}" height="20" rx="3" fill="{GREY}"/>'
        f'<path d="M{widths[0]:.0f} 0h{widths[1] - 3:.0f}q3 0 3 3v14q0 3 -3 3h-{widths[1] - 3:.0f}z" '
        f'fill="{COLOURS[found.status]}"/>'
    )
    middles = widths[0] / 2, widths[0] + widths[1] / 2
    texts = "".join(
        f'<text x="{middle:.1f}" y="14">{escape(text)}</text>'
        for middle, text in zip(middles, (left, right), strict=True)
    )
    style = 'fill="#fff" text-anchor="middle" font-family="Verdana,Geneva,sans-serif" font-size="11"'
    return Markup(f"{head}{boxes}<g {style}>{texts}</g></svg>\n")
