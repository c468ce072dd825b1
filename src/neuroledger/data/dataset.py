"""`Dataset`: the stimuli, the assembly, or both, that a reader returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import xarray as xr

from neuroledger.data.clocks import RecordingClocks
from neuroledger.data.stimuli import StimulusSet
from neuroledger.display import card

__all__ = ["Dataset"]


@dataclass(frozen=True)
class Dataset:
    """Stimuli and the assembly recorded with them.

    Attributes
    ----------
    stimuli
        The stimulus set, or None if the stimuli are not part of the data.
    assembly
        Neural or behavioural data, or None for a stimulus set alone.
    id
        Id of the data set.
    degrees
        Size of the stimuli in degrees of visual angle, if known.
    extras
        Further assemblies by name (training trials, properties of stimuli).
    extra_stimuli
        Further stimulus sets by name (those a readout is fitted on).
    metadata
        Arrays of any dimensions that came with the assembly. They are not scored, and they are exported again.
    notes
        What a reader left out or could not decide; every score of decoded data repeats these notes.
    content
        SHA-256 of the assembly as the reader returned it, before any selection (`assembly.content_sha256`); signals only.
    clocks
        The clocks of each recording and the windows left out, as the reader states them; the gate judges them.
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
    clocks: tuple[RecordingClocks, ...] = ()
    _derived: dict[str, xr.DataArray] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def once(self, what: str, make: Callable[[], xr.DataArray]) -> xr.DataArray:
        """Return what follows from the assembly, made once for all models and layers; it is not changed."""
        if what not in self._derived:
            self._derived[what] = make()
        return self._derived[what]

    def __repr__(self) -> str:
        if self.stimuli is None:
            parts = []
        else:
            parts = [f"{len(self.stimuli):,} stimuli"]
        if self.assembly is not None:
            sizes = (f"{n:,} {name}" for name, n in self.assembly.sizes.items())
            parts.append(" × ".join(map(str, sizes)))
        return f"Dataset({self.id or 'unnamed'}: {', '.join(parts) or 'empty'})"

    def _repr_html_(self) -> str:
        rows: list[tuple[str, object]] = [
            (f"note {i}", note) for i, note in enumerate(self.notes, 1)
        ]
        parts = [
            part._repr_html_()
            for part in (self.stimuli, self.assembly)
            if part is not None
        ]
        return card(self.id or "data set", rows, "".join(parts))
