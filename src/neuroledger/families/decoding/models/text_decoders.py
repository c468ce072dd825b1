"""Decoders of texts: a network that scores symbols over time, trained by connectionist temporal classification."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, JsonValue

from neuroledger.errors import ModelError
from neuroledger.families.decoding.models.network_decoders import PUBLISHED, built, imported
from neuroledger.families.decoding.protocols.decoder import Decoder, Signature
from neuroledger.families.decoding.training.decoding_recipes import Recipe
from neuroledger.families.decoding.training.signal_training import TrainedNetwork
from neuroledger.spec.registry import builder

__all__ = ["ctc_decoder"]


@builder("ctc_decoder", version=1)
def ctc_decoder(
    *,
    id: str,
    path: Annotated[str, Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")] = (
        "neuroledger.families.decoding.models.time_depth_networks.typing_network"
    ),
    parameters: dict[str, JsonValue] | None = None,
    symbols: str | None = None,
    breadth: Annotated[int, Field(ge=1)] = 1,
    recipe: Recipe = PUBLISHED,
    device: str = "cpu",
    shuffles_labels: bool = False,
) -> Decoder:
    """Any torch module by import path that gives (window, time, symbol), trained with the CTC loss [graves2006].

    The module has as many outputs as there are symbols, and one more, the last, for the blank. The default is the network
    that was published with emg2qwerty [sivakumar2024]. Early stopping watches the character error rate.

    Parameters
    ----------
    path, parameters
        The module and what it is given besides the shape of a window, as in `torch_decoder`.
    symbols
        The characters that texts are made of, in the order of the outputs; without them, those that occur, sorted.
    breadth
        How many beginnings of a text are followed while the trained network is read; 1 takes the best symbol at each time.

    Raises
    ------
    ModelError
        There is nothing at the path, it does not take the parameters, it answers otherwise, a text has more symbols than
        the network has steps in time, or one that is not among `symbols`.
    """
    if symbols is not None and len(set(symbols)) != len(symbols):
        twice = next(symbol for symbol in symbols if symbols.count(symbol) > 1)
        raise ModelError(f"model {id!r}: `symbols` has {twice!r} twice: each output stands for one of them")

    def make(signature: Signature) -> Any:
        return built(imported(path, id), signature, parameters or {}, id)

    def estimator(signature: Signature) -> TrainedNetwork:
        if symbols is not None:
            signature = signature._replace(symbols=tuple(symbols), outputs=len(symbols) + 1)
        return TrainedNetwork(make, signature, recipe, device, breadth=breadth)

    return Decoder(
        id=id,
        make=estimator,
        stochastic=True,
        objectives=("sequence",),
        shuffles_labels=shuffles_labels,
    )
