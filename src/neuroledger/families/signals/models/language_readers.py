"""Models that read texts: language networks of transformers, and stored reading times or surprisals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
import xarray as xr
from pydantic import Field

from neuroledger.data.arrays import Floats
from neuroledger.data.factorize import locate
from neuroledger.data.parsing import table_rows
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError, ModelError
from neuroledger.families.signals.embeddings.pretrained import pretrained
from neuroledger.families.signals.models.text_embedder import tokenizer
from neuroledger.models.model import Perform, Record, of_layers
from neuroledger.spec.channels import Channels
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import Arguments

__all__ = ["TextReader", "language_network", "stored_readings"]

READS: Final = ("reading_times", "next_word")


@dataclass(frozen=True, kw_only=True)
class TextReader:
    """A model that reads texts in context and returns responses of its regions, or behaviour, for each part.

    ``read`` processes one passage. Its arguments are the contexts of the parts, their stimulus ids, and the requested
    output: the name of a region, or one of ``behaviour``. It returns an array (part, …).
    """

    id: str
    regions: tuple[str, ...] = ()
    behaviour: tuple[str, ...] = READS
    read: Callable[[Sequence[str], Sequence[str], str], Sequence[Floats] | Floats] = (
        field(repr=False)
    )

    takes = frozenset({"text"})

    @property
    def gives(self) -> Channels:
        """Responses of its regions, and reading behaviour."""
        return frozenset(
            {f"responses:{name}" for name in self.regions}
            | {f"decisions:{name}" for name in self.behaviour}
        )

    def answer(self, question: Record | Perform) -> xr.DataArray:
        """(presentation,) for behaviour, (presentation, neuroid) for a region, in the order of the stimuli."""
        stimuli: StimulusSet = question.stimuli
        output = question.region if isinstance(question, Record) else question.task.name
        table = stimuli.table
        missing = [name for name in ("text", "context", "passage") if name not in table]
        if missing:
            raise DataError(
                f"stimuli {stimuli.id!r} have no column {missing[0]!r}: model {self.id!r} reads texts in context; use the "
                "paradigm `reading`"
            )
        answers: list[Any] = [None] * len(table)
        for _, rows in table.groupby("passage", sort=False).indices.items():
            passage = self.read(
                table["context"].iloc[rows].tolist(),
                [stimuli.ids[row] for row in rows],
                output,
            )
            for row, value in zip(rows, passage, strict=True):
                answers[row] = value
        coords: dict[str, object] = {"stimulus_id": ("presentation", stimuli.ids)}
        if not isinstance(question, Record):
            return xr.DataArray(
                np.asarray(answers), dims=("presentation",), coords=coords
            )
        values = np.stack(answers)
        names = [f"{self.id}.{output}.{number}" for number in range(values.shape[1])]
        coords |= {
            "neuroid_id": ("neuroid", names),
            "layer": ("neuroid", [output] * len(names)),
        }
        coords["region"] = ("neuroid", [output] * len(names))
        return xr.DataArray(
            values,
            dims=("presentation", "neuroid"),
            coords=coords,
            attrs={"model": self.id},
        )


@builder(
    "language_network",
    version=1,
    takes={"text"},
    gives=partial(of_layers, decisions=READS),
)
def language_network(
    *,
    id: str,
    architecture: str,
    longest: Annotated[int, Field(gt=1)],
    config: Arguments | None = None,
    unused: tuple[str, ...] = (),
    regions: Mapping[str, str | tuple[str, ...]] | None = None,
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
) -> TextReader:
    """A causal language network of transformers with pinned weights and the pinned ``tokenizer.json``.

    It reads a passage part by part. The reading time of a part is its surprisal in bits, summed over the tokens that the
    part adds to the context; the first token of a passage has none. A response is the hidden state of the last token.

    Parameters
    ----------
    architecture, config
        A class with a language head, such as ``GPT2LMHeadModel``, and fields of its configuration.
    longest
        Maximum number of tokens; the beginning of a longer context is cut off.
    unused
        Prefixes of the names of tensors in the files that the network does not use.
    regions
        Region → number of its hidden state: ``"0"`` is the input of the first block.

    Raises
    ------
    ModelError
        The state of a region is not the number of a hidden state, or the class has no language head.
    """
    encoder = tokenizer(weights or {}, id)
    states: dict[str, int] = {}
    for name, state in (regions or {}).items():
        if not isinstance(state, str) or not state.isdecimal():
            raise ModelError(
                f"model {id!r}, region {name}: {state!r} is not the number of a hidden state"
            )
        states[name] = int(state)
    network = pretrained(
        id,
        architecture,
        config or {},
        weights or {},
        states=tuple(set(states.values())) or (0,),
        unused=unused,
        device=device,
    )

    def read(contexts: Sequence[str], ids: Sequence[str], output: str) -> list[Any]:
        import torch

        answers: list[Any] = []
        previous = 0
        for context, stimulus in zip(contexts, ids, strict=True):
            token_ids = encoder.encode(context, add_special_tokens=False).ids
            if not token_ids:
                raise DataError(
                    f"stimulus {stimulus!r}: its context {context!r} has no token"
                )
            window = token_ids[-longest:]
            new = min(len(token_ids) - previous, len(window))
            previous = len(token_ids)
            inputs = {
                "input_ids": torch.tensor([window]),
                "attention_mask": torch.ones(1, len(window), dtype=torch.long),
            }
            if output in states:
                answers.append(
                    network.hidden((states[output],), **inputs)[0, -1].cpu().numpy()
                )
                continue
            logits = network.logits(**inputs)[0].cpu()
            if output == "next_word":
                answers.append(encoder.decode([int(logits[-1].argmax())]).strip())
                continue
            positions = range(max(len(window) - new, 1), len(window))
            if len(window) < 2 or not positions:
                answers.append(np.nan)
                continue
            log_probabilities = torch.log_softmax(
                logits[[place - 1 for place in positions]].double(), dim=-1
            )
            window_ids = torch.tensor([window[place] for place in positions])
            answers.append(
                float(
                    -log_probabilities[torch.arange(len(window_ids)), window_ids].sum()
                    / np.log(2)
                )
            )
        return answers

    return TextReader(id=id, regions=tuple(states), read=read)


@builder(
    "stored_readings", version=1, takes={"text"}, gives={"decisions:reading_times"}
)
def stored_readings(
    *,
    id: str,
    stimulus: str = "stimulus_id",
    value: str = "surprisal",
    weights: Mapping[str, Path] | None = None,
) -> TextReader:
    """Stored reading times: the columns ``stimulus`` and ``value`` of one pinned CSV table.

    Raises
    ------
    ModelError
        There is not exactly one table, a value is not a number, or a stimulus has several rows.
    """
    files = dict(weights or {})
    if len(files) != 1:
        raise ModelError(
            f"model {id!r}: pin exactly one CSV table under `weights`; there are {len(files)}"
        )
    ((name, path),) = files.items()
    rows = [row for _, row in table_rows(path, stimulus, value, name=name)[1]]
    names = [row[stimulus] for row in rows]
    try:
        numbers = np.asarray([float(row[value]) for row in rows])
    except ValueError as error:
        raise ModelError(f"model {id!r}: {name}, column {value!r}: {error}") from None
    if len(set(names)) != len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise ModelError(
            f"model {id!r}: {name} has several rows for stimulus {repeated!r}"
        )

    def read(contexts: Sequence[str], ids: Sequence[str], output: str) -> Any:
        del contexts, output
        places = locate(ids, names)
        if (places < 0).any():
            missing = ids[int(np.flatnonzero(places < 0)[0])]
            raise ModelError(
                f"model {id!r} has no stored reading time for stimulus {missing!r}"
            )
        return numbers[places]

    return TextReader(id=id, behaviour=("reading_times",), read=read)
