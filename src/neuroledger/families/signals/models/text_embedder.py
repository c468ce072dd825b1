"""Embeddings of words and sentences: the tokens of hidden states of a language network, averaged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import PositiveInt

from neuroledger.data.arrays import Array
from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import DataError, ModelError
from neuroledger.families.signals.embeddings.pretrained import (
    States,
    described,
    other_files,
    pretrained,
)
from neuroledger.families.signals.models.image_embedder import Tokens, pooled
from neuroledger.models.embedder import Embedded, Embedder, Shown, Tell
from neuroledger.models.torch_module import require
from neuroledger.spec.registry import builder
from neuroledger.spec.trusted import Arguments

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER: Final = "tokenizer.json"


@builder("text_embedder", version=1, takes={"text"}, gives={"embeddings"})
def text_embedder(
    *,
    id: str,
    architecture: str,
    states: States,
    longest: PositiveInt,
    config: Arguments | None = None,
    tokens: Tokens = "mean",
    contextual: bool = False,
    unused: tuple[str, ...] = (),
    weights: Mapping[str, Path] | None = None,
    device: str = "cpu",
) -> Embedder:
    """A language network of transformers with pinned weights and the pinned ``tokenizer.json``.

    No special tokens are added, and texts are processed one at a time.

    Parameters
    ----------
    states
        Hidden states that are averaged: 0 is the input of the first block, k the output of block k.
    longest
        Maximum number of tokens; the beginning of a longer text is cut off.
    tokens
        Mean over the tokens of the text, or its first or last token.
    contextual
        The network receives the stimulus's ``context``, which ends in its text; only the tokens of the text are used.
    unused
        Prefixes of the names of tensors in the files that the network does not use.
    """
    encoder = tokenizer(weights or {}, id)
    network = pretrained(
        id,
        architecture,
        config or {},
        weights or {},
        states=states,
        unused=unused,
        device=device,
    )

    def embed(
        stimuli: Sequence[Shown], requested: tuple[int, ...] | None, tell: Tell
    ) -> Embedded:
        import torch

        used = network.checked(requested or states)
        rows: dict[tuple[str, str], Array] = {}
        shortened = 0
        for number, stimulus in enumerate(stimuli):
            tell(number)
            with_context, text = _input_of(stimulus, contextual)
            if (with_context, text) in rows:
                continue
            encoding = encoder.encode(with_context, add_special_tokens=False)
            before = len(with_context) - len(text)
            text_tokens = sum(end > before for _, end in encoding.offsets)
            if not text_tokens:
                raise DataError(
                    f"stimulus {stimulus.stimulus_id!r}: its text {text!r} has no token"
                )
            shortened += len(encoding.ids) > longest
            token_ids = torch.tensor([encoding.ids[-longest:]])
            hidden = network.hidden(
                used, input_ids=token_ids, attention_mask=torch.ones_like(token_ids)
            )
            rows[with_context, text] = pooled(hidden[:, -text_tokens:], tokens)[0]
        notes = (
            (
                f"{shortened} texts are longer than {longest} tokens: their beginnings were left out",
            )
            if shortened
            else ()
        )
        values = np.stack(
            [rows[_input_of(stimulus, contextual)] for stimulus in stimuli]
        )
        return Embedded(values.astype(np.float32), notes)

    settings = {
        "states": list(states),
        "tokens": tokens,
        "longest": longest,
        "contextual": contextual,
    }
    description = described(
        architecture, config or {}, weights or {}, device, ("tokenizers",), **settings
    )
    return Embedder(id=id, shown="text", embed=embed, described=description)


def _input_of(stimulus: Shown, contextual: bool) -> tuple[str, str]:
    """The input of the network, and the text at its end.

    Raises
    ------
    DataError
        The context is missing, or does not end in the text.
    """
    if not contextual:
        return stimulus.text, stimulus.text
    if not stimulus.context:
        raise DataError(
            f"stimulus {stimulus.stimulus_id!r} has no context, which this model needs: add a column `context` with the "
            "passage up to the end of the text"
        )
    if not stimulus.context.endswith(stimulus.text):
        raise DataError(
            f"stimulus {stimulus.stimulus_id!r}: its context ends in {stimulus.context[-20:]!r}, not in {stimulus.text!r}"
        )
    return stimulus.context, stimulus.text


def tokenizer(weights: Mapping[str, Path], model: str) -> Tokenizer:
    """The tokenizer in the pinned file ``tokenizer.json``, without padding or truncation.

    Raises
    ------
    ModelError
        The file is missing or is not a tokenizer, or a file is pinned that would not be used.
    """
    others = other_files(weights)
    if set(others) != {TOKENIZER}:
        names = ", ".join(sorted(others)) or "none"
        raise ModelError(
            f"model {model!r} needs its tokenizer: pin {TOKENIZER} under `weights`, and only tensors besides (other files: "
            f"{names})"
        )
    tokenizers = require("tokenizers", "language")
    try:
        text = others[TOKENIZER].read_text(encoding="utf-8")
        parts = json.loads(text)
    except (OSError, ValueError) as error:
        raise ModelError(
            f"model {model!r}: {TOKENIZER} is not a tokenizer ({error}): it is damaged or incomplete"
        ) from error
    if not isinstance(parts, dict) or "model" not in parts:
        raise ModelError(
            f"model {model!r}: {TOKENIZER} is not a tokenizer (it has no `model`)"
        )
    # A tokenizer cannot be passed between processes. It is first built in a sandbox, to see that it is safe, then here.
    make = tokenizers.Tokenizer.from_str
    confined(
        lambda: make(text) is None,
        limits_for([others[TOKENIZER]]),
        f"model {model!r}: {TOKENIZER}",
    )
    encoder = make(text)
    encoder.no_padding()
    encoder.no_truncation()
    return encoder
