"""What a reader returns: stimuli, an assembly, or both."""

from __future__ import annotations

from dataclasses import dataclass, field

import xarray as xr

from neuroledger.data.stimuli import StimulusSet
from neuroledger.display import card

__all__ = ["Dataset"]


@dataclass(frozen=True)
class Dataset:
    """Stimuli and the assembly recorded with them.

    Attributes
    ----------
    stimuli
        The stimulus set, or None where the stimuli are not part of the data.
    assembly
        Brain or behaviour data, or None for a set of stimuli alone.
    degrees
        Size of the stimuli in degrees of visual angle, where known.
    extras
        Further assemblies by name (training trials, stimulus sets' own properties).
    metadata
        Arrays that came with the assembly, of whatever dimensions: nothing is scored on them, and they are exported again.
    extra_stimuli
        Further stimulus sets by name (those a readout is fitted on).
    notes
        What a reader left out or could not decide, in words; it stands in the notes of every score of what is decoded.
    content
        SHA-256 of the assembly as the reader gave it, before anything is selected (`core.assembly.content_sha256`); of
        signals only.
    """

    stimuli: StimulusSet | None
    assembly: xr.DataArray | None
    id: str = ""
    degrees: float | None = None
    extras: dict[str, xr.DataArray] = field(default_factory=dict)
    extra_stimuli: dict[str, StimulusSet] = field(default_factory=dict)
    metadata: dict[str, xr.DataArray] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    content: str = ""

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [(f"note {i}", note) for i, note in enumerate(self.notes, 1)]
        shown = [part._repr_html_() for part in (self.stimuli, self.assembly) if part is not None]
        return card(self.id or "data set", rows, "".join(shown))
