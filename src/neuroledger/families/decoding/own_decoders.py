"""A user's own network as a decoder: from a module, a class, a file or an import path to its scores on a suite."""

from __future__ import annotations

import copy
import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from neuroledger.engine.public import run
from neuroledger.engine.record import Outcome
from neuroledger.errors import RequestError
from neuroledger.families.decoding.models.network_decoders import (
    ANYTHING,
    build_network,
    network_to_decoder,
)
from neuroledger.families.decoding.models.window_inputs import Inputs
from neuroledger.families.decoding.protocols.decoder import Decoder, Signature
from neuroledger.families.decoding.training.adaptation import Adapt
from neuroledger.families.decoding.training.decoding_recipes import Recipe
from neuroledger.families.signals.model_needs import Needs
from neuroledger.spec.base import worded

__all__ = ["evaluate_decoder", "loaded", "own_decoder"]

RECIPE = {"name": "neuralbench"}


def evaluate_decoder(
    module: Any,
    *,
    suite: str | None = None,
    benchmarks: Sequence[str] = (),
    seed: int | None = None,
    **declared: Any,
) -> list[Outcome]:
    """Train and score an own network on every decoding benchmark of a suite; nothing is written.

    Parameters
    ----------
    module
        A torch module, which every training starts from as it is; or a class or function that builds one from the windows;
        or where to find one of these: `FILE.py:NAME` or `package.module:NAME`. The code in the file is run.
    suite, benchmarks, seed
        As in `neuroledger.run`.
    declared
        Arguments of `own_decoder`: `recipe`, `parameters`, `needs`, `inputs`, `adapt`, `device` and `id`.

    Returns
    -------
    list
        A record for each benchmark, or what is pending on this machine.

    Raises
    ------
    RequestError
        Nothing is found there, or an argument is invalid.

    Examples
    --------
    >>> import torch
    >>> import neuroledger as nl
    >>> _ = torch.manual_seed(0)
    >>> network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.LazyLinear(2))
    >>> recipe = {"name": "laptop", "epochs": 1}
    >>> [record] = nl.evaluate_decoder(network, benchmarks=["EEGLAB.sample-position"], recipe=recipe)
    >>> record.status
    'scored'
    """
    decoder = own_decoder(module, **declared)
    return run([decoder], suite=suite, benchmarks=benchmarks, seed=seed)


def own_decoder(
    module: Any,
    *,
    id: str = "",
    recipe: Mapping[str, Any] = RECIPE,
    parameters: Mapping[str, Any] | None = None,
    needs: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | None = None,
    adapt: str | Mapping[str, Any] = "full",
    device: str = "cpu",
) -> Decoder:
    """A decoder of an own network; its fields are those of `torch_decoder` in a spec.

    Parameters
    ----------
    module, id
        As in `evaluate_decoder`, and the name for scores (default: that of the class).
    recipe, needs, inputs, adapt
        How it is trained, how windows must be prepared, what is done to each, and which parameters are trained.
    parameters
        Further arguments of a class or function, besides those that follow from the windows.

    Raises
    ------
    RequestError
        Nothing is found, it is no torch module and builds none, or an argument is invalid.
    """
    source = loaded(module) if isinstance(module, str) else module
    is_module = hasattr(source, "state_dict") and not isinstance(source, type)
    if not is_module and not callable(source):
        raise RequestError(
            f"{source!r} is neither a torch module nor something that builds one"
        )
    if is_module and parameters:
        raise RequestError(
            "a module is built already: pass its class with `parameters`"
        )
    kind = type(source) if is_module else source
    name = id or getattr(kind, "__name__", "network")

    def make(signature: Signature) -> Any:
        if is_module:
            return copy.deepcopy(source)
        known = {"positions": signature.positions}
        return build_network(source, signature, parameters or {}, name, known)

    return network_to_decoder(
        name,
        make,
        _parsed("recipe", Recipe, recipe),
        True,
        device,
        False,
        ANYTHING,
        needs=_parsed("needs", Needs | None, needs),
        inputs=_parsed("inputs", Inputs | None, inputs),
        adapt=_parsed("adapt", Adapt, adapt),
    )


def _parsed(name: str, kind: Any, value: Any) -> Any:
    """A validated argument.

    Raises
    ------
    RequestError
        It is invalid.
    """
    try:
        return TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        said = {
            f"{_place(name, item['loc'])}: {worded(item)}" for item in error.errors()
        }
        raise RequestError("; ".join(sorted(said))) from None


def _place(name: str, steps: Sequence[Any]) -> str:
    """Where in an argument an error is: `needs.rate`."""
    return ".".join(map(str, (name, *steps)))


def loaded(place: str) -> Any:
    """What `FILE.py:NAME` or `package.module:NAME` names, after running the file or importing the module.

    Raises
    ------
    RequestError
        There is no such file, module or name, or the file cannot be run.
    """
    source, _, name = place.rpartition(":")
    if not source:
        raise RequestError(
            f"{place!r} names no network: write FILE.py:NAME or package.module:NAME"
        )
    try:
        module = None
        if source.endswith(".py"):
            module = _from_file(Path(source))
        module = module or importlib.import_module(source)
    except Exception as error:
        raise RequestError(f"{source} cannot be imported ({error})") from error
    if not hasattr(module, name):
        public = [known for known in vars(module) if not known.startswith("_")]
        raise RequestError(f"{source} has no {name!r}; it has {', '.join(public)}")
    return getattr(module, name)


def _from_file(path: Path) -> Any:
    """Run a file as a module; files beside it can be imported while it runs."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise RequestError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module
