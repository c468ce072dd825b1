"""Layer curves that were measured and kept in ``results/layers``, for the pages."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from neuroledger.display import visible
from neuroledger.errors import Finding
from neuroledger.report.drawings import layer_curve
from neuroledger.spec.document import json_object

__all__ = ["CAPTION", "Curve", "curves_in", "figures"]

CAPTION: Final = (
    "Score of each layer of {model} by its depth, with 95 % intervals; grey: untrained. Ring: the layer that half of the "
    "stimuli chose."
)
NESTED: Final = " Diamond: its score on the other half, which did not choose it."
MAX_LAYERS: Final = 2000
MAX_BYTES: Final = 2_000_000

_Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e6, le=1e6)]


class _Estimate(BaseModel):
    model_config = ConfigDict(extra="ignore")

    value: _Number
    low: _Number | None = None
    high: _Number | None = None


class _Layer(_Estimate):
    layer: Annotated[str, Field(min_length=1, max_length=200)]
    depth: Annotated[float, Field(ge=0, le=1)]
    untrained: _Estimate | None = None


class Curve(BaseModel):
    """The scores of the layers of a model on a benchmark, the ceiling, and the layer that other stimuli chose."""

    model_config = ConfigDict(extra="ignore")

    model: str
    benchmark: str
    scale: Annotated[str, Field(max_length=100)]
    layers: Annotated[tuple[_Layer, ...], Field(min_length=1, max_length=MAX_LAYERS)]
    ceiling: _Estimate | None = None
    nested: _Estimate | None = None
    chosen: str | None = None

    @model_validator(mode="after")
    def _each_once(self) -> Curve:
        names = [layer.layer for layer in self.layers]
        if len(set(names)) < len(names):
            raise ValueError("a layer is listed twice")
        return self


def curves_in(root: Path) -> Iterator[Curve]:
    """Yield the curves below ``results/layers``, sorted by path; files that are no curve are logged and left out."""
    folder = root / "results" / "layers"
    for path in sorted(folder.rglob("*.json")):
        try:
            if path.stat().st_size > MAX_BYTES:
                raise ValueError(f"larger than {MAX_BYTES} bytes")
            yield Curve.model_validate(json_object(path.read_bytes()))
        except (OSError, ValueError) as error:
            lines = error.errors() if isinstance(error, ValidationError) else []
            if lines:
                reason = f"{lines[0]['loc']}: {lines[0]['msg']}"
            else:
                reason = str(error).partition("\n")[0]
            fix = "delete it and measure the layers again"
            finding = Finding(
                "record.unreadable",
                "error",
                path.name,
                f"not a layer curve ({reason})",
                fix,
            )
            logging.getLogger("neuroledger").warning("%s", visible(str(finding)))


def figures(curves: Sequence[Curve], benchmark: str) -> list[tuple[str, Markup]]:
    """Return caption and drawing of each curve of a benchmark."""
    drawn = []
    for curve in curves:
        if curve.benchmark == benchmark:
            caption = CAPTION.format(model=curve.model) + (
                NESTED if curve.nested is not None else ""
            )
            drawn.append((caption, layer_curve(curve.model_dump())))
    return drawn
