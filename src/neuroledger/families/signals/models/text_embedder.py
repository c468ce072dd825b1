"""Embeddings of words and sentences: the tokens of hidden states of a language network, averaged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field

from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import DataError, ModelError
from neuroledger.families.signals.embeddings.pretrained import States, described, other_files, pretrained
from neuroledger.families.signals.models.image_embedder import Tokens, pooled
from neuroledger.models.embedder import Embedded, Embedder, Shown, Tell
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import Arguments

TOKENIZER: Final = "tokenizer.json"


@builder("text_embedder", version=1, takes={"text"}, gives={"embeddings"})
def text_embedder(
    *,
    id: str,
    architecture: str,
    states: States,
    longest: Annotated[int, Field(gt=0)],
    config: Arguments | None = None,
    tokens: Tokens = "mean",
    contextual: bool = False,
    unused: tuple[str, ...] = (),
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
) -> Embedder:
    """A language network of transformers with pinned weights, and its tokenizer in the pinned file ``tokenizer.json``.

    No special tokens are added, and every text is shown alone.

    Parameters
    ----------
    states
        Hidden states that are averaged: 0 is what the first block receives, k what the k-th gives.
    longest
        Tokens that are shown at most; of a longer text the beginning is left out.
    tokens
        Mean over the tokens of the text, or the first, or the last of them.
    contextual
        The network is shown the stimulus's ``context``, which ends in its text, and the tokens of the text are taken.
    unused
        Beginnings of names of tensors that the files hold and the network lacks.
    """
    cut = tokenizer(weights or {}, id)
    network = pretrained(
        id, architecture, config or {}, weights or {}, states=states, unused=unused, device=device
    )

    def embed(shown: Sequence[Shown], asked: tuple[int, ...] | None, tell: Tell) -> Embedded:
        import torch

        wanted = network.checked(asked or states)
        rows: dict[tuple[str, str], Any] = {}
        long = 0
        for number, one in enumerate(shown):
            tell(number)
            whole, text = _said(one, contextual)
            if (whole, text) in rows:
                continue
            pieces = cut.encode(whole, add_special_tokens=False)
            before = len(whole) - len(text)
            own = sum(end > before for _, end in pieces.offsets)
            if not own:
                raise DataError(f"stimulus {one.stimulus_id!r}: no token of the text {text!r}")
            long += len(pieces.ids) > longest
            numbers = torch.tensor([pieces.ids[-longest:]])
            hidden = network.hidden(wanted, input_ids=numbers, attention_mask=torch.ones_like(numbers))
            rows[whole, text] = pooled(hidden[:, -own:], tokens)[0]
        notes = (
            (f"{long} texts are longer than {longest} tokens: their beginnings were left out",)
            if long
            else ()
        )
        values = np.stack([rows[_said(one, contextual)] for one in shown])
        return Embedded(values.astype(np.float32), notes)

    how = {"states": list(states), "tokens": tokens, "longest": longest, "contextual": contextual}
    told = described(architecture, config or {}, weights or {}, device, ("tokenizers",), **how)
    return Embedder(id=id, shown="text", embed=embed, described=told)


def _said(one: Shown, contextual: bool) -> tuple[str, str]:
    """What the network is shown, and the text at its end.

    Raises
    ------
    DataError
        The context is missing, or does not end in the text.
    """
    if not contextual:
        return one.text, one.text
    if not one.context:
        raise DataError(
            f"stimulus {one.stimulus_id!r} has no context, which this model is shown: add a column `context`, everything "
            "up to the end of the text"
        )
    if not one.context.endswith(one.text):
        raise DataError(
            f"stimulus {one.stimulus_id!r}: its context ends in {one.context[-20:]!r}, not in {one.text!r}"
        )
    return one.context, one.text


def tokenizer(weights: Mapping[str, Path], model: str) -> Any:
    """The tokenizer in the pinned file ``tokenizer.json``, without padding or truncation.

    Raises
    ------
    ModelError
        It is not there or is no tokenizer, or another file is that nothing reads.
    """
    others = other_files(weights)
    if set(others) != {TOKENIZER}:
        found = ", ".join(sorted(others)) or "none"
        raise ModelError(
            f"model {model!r} is shown tokens: pin its {TOKENIZER} under `weights`, and nothing else beside the tensors "
            f"(there: {found})"
        )
    tokenizers = require("tokenizers", "language")
    try:
        text = others[TOKENIZER].read_text(encoding="utf-8")
        parts = json.loads(text)
    except (OSError, ValueError) as error:
        raise ModelError(f"model {model!r}: {TOKENIZER} is no tokenizer ({error}); fetch it again") from error
    if not isinstance(parts, dict) or "model" not in parts:
        raise ModelError(f"model {model!r}: {TOKENIZER} is no tokenizer (it has no `model`)")
    # A tokenizer cannot be handed over by another process: it is made where a damaged one harms nobody, then here.
    make = tokenizers.Tokenizer.from_str
    confined(lambda: make(text) is None, limits_for([others[TOKENIZER]]), f"model {model!r}: {TOKENIZER}")
    made = make(text)
    made.no_padding()
    made.no_truncation()
    return made
