"""The costs of one network as a table: text, HTML, a data frame, and a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from neuroledger.report.pareto import readable
from neuroledger.stats.score import Score
from neuroledger.store.files import write_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Costs"]

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1d1d1f}}
table{{border-collapse:collapse;width:100%;margin:1rem 0}}th,td{{text-align:left;padding:.3rem .8rem .3rem 0;
border-bottom:1px solid #ddd;vertical-align:top}}td.number{{text-align:right;white-space:nowrap}}</style></head>
<body><h1>{title}</h1>{body}</body></html>
"""


class Costs(Mapping[str, Score]):
    """Scores by the id of their cost metric, shown as a table."""

    def __init__(self, scores: Mapping[str, Score], name: str = "network") -> None:
        self._scores = dict(scores)
        self.name = name

    def __getitem__(self, id: str) -> Score:
        return self._scores[id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._scores)

    def __len__(self) -> int:
        return len(self._scores)

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each metric: cost, value, unit, status, reason."""
        import pandas as pd

        rows = [
            {
                "cost": id,
                "value": score.value,
                "unit": score.unit or "",
                "status": score.status,
                "reason": score.reason,
            }
            for id, score in self._scores.items()
        ]
        return pd.DataFrame(rows, columns=["cost", "value", "unit", "status", "reason"])

    def _rows(self) -> list[tuple[str, str, str]]:
        """Return name, value and remark of each cost, as people read them."""
        rows = []
        for id, score in self._scores.items():
            value = (
                "–"
                if score.status == "failed"
                else readable(score.value, score.unit or "")
            )
            remark = (
                "" if score.status == "scored" else f"{score.status}: {score.reason}"
            )
            rows.append((id, value, remark))
        return rows

    def __repr__(self) -> str:
        rows = self._rows()
        wide, broad = (
            max((len(row[column]) for row in rows), default=0) for column in (0, 1)
        )
        lines = [
            f"{id:<{wide}}  {value:>{broad}}  {remark}".rstrip()
            for id, value, remark in rows
        ]
        return "\n".join([f"Costs of {self.name}", *lines])

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><th>{escape(id)}</th><td class='number'>{escape(value)}</td><td>{escape(remark)}</td></tr>"
            for id, value, remark in self._rows()
        )
        return f"<table><caption>Costs of {escape(self.name)}</caption>{cells}</table>"

    def to_html(self, path: str | Path) -> Path:
        """Write the certificate, a page of its own: all costs, their parts by layer, and what they depend on."""
        parts = [self._repr_html_()]
        for id, score in self._scores.items():
            if score.samples is not None and score.samples.size > 1:
                (dimension,) = score.samples.dims
                names = score.samples[dimension].values.tolist()
                values = [
                    readable(float(value), score.unit or "")
                    for value in score.samples.values
                ]
                rows = "".join(
                    f"<tr><td>{escape(str(name))}</td><td class='number'>{value}</td></tr>"
                    for name, value in zip(names, values, strict=True)
                )
                parts.append(
                    f"<h2>{escape(id)} by {escape(str(dimension))}</h2><table>{rows}</table>"
                )
        notes = {note for score in self._scores.values() for note in score.notes}
        parts.append(
            "<h2>Conditions</h2><ul>"
            + "".join(f"<li>{escape(note)}</li>" for note in sorted(notes))
            + "</ul>"
        )
        target = Path(path)
        write_text(
            target,
            PAGE.format(title=f"Costs of {escape(self.name)}", body="".join(parts)),
        )
        return target
