"""Convert images to the input of a torch module, and record its named layers reproducibly with forward hooks."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

import numpy as np

from neuroledger.data.arrays import Array, Singles
from neuroledger.data.screen import shown, shown_as
from neuroledger.data.stimuli import StimulusSet
from neuroledger.data.threads import exclusive
from neuroledger.errors import LimitError, ModelError
from neuroledger.models.activations import Trial
from neuroledger.models.devices import available, reproducible
from neuroledger.models.model import unknown
from neuroledger.models.preprocessing import Preprocessing, look

if TYPE_CHECKING:
    import torch


# Exceptions that a module may raise on an input that it does not accept.
REFUSALS: Final = (
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
)

OUTPUT: Final = "output"
"""Name under which the module's own output is recorded, unless a submodule has that name."""


@dataclass(frozen=True)
class Run:
    """A module that ran in a forward pass.

    Attributes
    ----------
    name
        As in ``named_modules``.
    shape
        Shape of its output (of the first tensor in it).
    weighted
        Whether the module, or one inside it, has a weight matrix or a kernel; normalisation layers have none.
    per_stimulus
        Whether the output has an axis of stimuli (the first or the second one).
    """

    name: str
    shape: tuple[int, ...]
    weighted: bool
    per_stimulus: bool


@dataclass(frozen=True)
class TorchExtract:
    """A function from stimuli to the activations of ``module``; see :class:`neuroledger.models.activations.Extract`.

    ``inputs`` converts images to the module's input. ``steps`` is the number of time steps: a layer either runs once in
    each step, or has the steps as the output axis after the stimuli. Without ``steps``, a layer that runs several times
    is read at its last run. ``microsaccades`` is the visual angle in degrees that the input spans, if every trial shifts
    the image slightly. A batch that does not fit in the device's memory is halved until it fits.
    """

    module: torch.nn.Module
    inputs: Inputs
    device: str = "cpu"
    steps: int | None = None
    seed: int = 0
    microsaccades: float | None = None

    def __call__(
        self,
        stimuli: StimulusSet,
        stimulus_ids: Sequence[str],
        layers: Sequence[str],
        trial: Trial,
    ) -> dict[str, Array]:
        """Return layer → (stimulus, …) for ``stimulus_ids``, in that order."""
        return self.write(stimuli, stimulus_ids, layers, trial, {})

    def write(
        self,
        stimuli: StimulusSet,
        stimulus_ids: Sequence[str],
        layers: Sequence[str],
        trial: Trial,
        places: Mapping[str, Array],
    ) -> dict[str, Array]:
        """Return the same as a call; an answer of the shape and type of its layer's place is written there."""
        import torch

        inputs = self.inputs(stimuli, stimulus_ids)
        if self.microsaccades is not None:
            inputs = torch.from_numpy(
                look(inputs.numpy(), trial.number, trial.of, self.microsaccades)
            )
        device = available(self.device)
        sequence = np.random.SeedSequence(
            (self.seed, trial.number, _seed_of_batch(stimulus_ids))
        )
        seed = int(sequence.generate_state(1, np.uint64)[0]) >> 1
        with exclusive():
            self.module.to(device)
            with _evaluating(self.module), reproducible(device, seed):
                return self._run(inputs, layers, device, places)

    def ahead(self, stimuli: StimulusSet, stimulus_ids: Sequence[str]) -> None:
        """Prepare the input of the next batch in the background."""
        self.inputs.ahead(stimuli, stimulus_ids)

    def trace(self, stimuli: StimulusSet, stimulus_ids: Sequence[str]) -> list[Run]:
        """Return the modules that run on ``stimulus_ids``, in the order in which their last run finishes."""
        import torch

        inputs = self.inputs(stimuli, stimulus_ids)
        device = available(self.device)
        with exclusive():
            self.module.to(device)
            with (
                _evaluating(self.module),
                reproducible(device, self.seed),
                torch.inference_mode(),
            ):
                return _trace(self.module, inputs.to(device), self.inputs.model)

    def _run(
        self,
        inputs: torch.Tensor,
        layers: Sequence[str],
        device: torch.device,
        places: Mapping[str, Array],
    ) -> dict[str, Array]:
        """Run one forward pass; halve the batch if memory does not suffice."""
        import torch

        module = self.module
        model = self.inputs.model
        if self.steps is not None:
            places = {}  # outputs of several runs are stacked
        try:
            with (
                recording(module, layers, model, places) as runs,
                torch.inference_mode(),
            ):
                shown = _match_dtype(module, inputs.to(device))
                answer = _forward(module, shown, model)
            if OUTPUT in layers and OUTPUT not in runs:
                runs[OUTPUT] = [_tensor(answer, OUTPUT, model)]
            return {
                layer: _stack_runs(
                    runs.get(layer, []), layer, len(inputs), model, self.steps
                )
                for layer in layers
            }
        except torch.OutOfMemoryError:
            if len(inputs) == 1:
                raise LimitError(
                    f"model {model!r}: out of memory on {device} with one stimulus; use `device: cpu`, or name fewer layers"
                ) from None
        torch.cuda.empty_cache()
        half = len(inputs) // 2
        parts = [
            self._run(part, layers, device, {})
            for part in (inputs[:half], inputs[half:])
        ]
        return {
            layer: np.concatenate([part[layer] for part in parts]) for layer in layers
        }


def check_layers(module: torch.nn.Module, layers: Sequence[str], model: str) -> None:
    """Check that the module has all ``layers``.

    Raises
    ------
    ModelError
        A layer is missing; the message lists every missing layer with the most similar names.
    """
    known = [name for name, _ in module.named_modules() if name]
    missing = [layer for layer in layers if layer not in known and layer != OUTPUT]
    if missing:
        raise ModelError(
            f"model {model!r} has no "
            + "; no ".join(unknown("layer", name, known) for name in missing)
        )


def state_sha256(module: torch.nn.Module) -> str:
    """Return the SHA-256 of all parameters and buffers with their names: the present state of a module in memory."""
    import torch

    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        if not hasattr(tensor, "detach"):
            continue
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name}:{values.dtype}:{tuple(values.shape)}:".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def in_memory(
    module: torch.nn.Module,
    described: Mapping[str, object],
    *,
    origin: torch.nn.Module | None = None,
) -> Callable[[], dict[str, object]]:
    """Return a function that computes the identity of a module in this process from its present weights.

    Models of one module that are described alike share activations. ``origin`` is the module of which this one is a
    copy: copies with equal weights share activations too.
    """
    token = _token(origin if origin is not None else module)

    def identity() -> dict[str, object]:
        return {**described, "process": token, "state": state_sha256(module)}

    return identity


_TOKENS: Final[WeakKeyDictionary[torch.nn.Module, str]] = WeakKeyDictionary()
"""Names of the modules of this process, while they live."""


def _token(module: torch.nn.Module) -> str:
    return _TOKENS.setdefault(module, uuid.uuid4().hex)


def _trace(module: torch.nn.Module, inputs: torch.Tensor, model: str) -> list[Run]:
    """Run one forward pass and return the modules that return a tensor, in the order of their last run."""
    shapes: dict[str, tuple[int, ...]] = {}

    def tracer(name: str) -> Callable[[torch.nn.Module, object, object], None]:
        def hook(_module: torch.nn.Module, _inputs: object, output: object) -> None:
            shapes.pop(name, None)  # so that a module that runs again moves to the end
            tensor = _first_tensor(output)
            if tensor is not None:
                shapes[name] = tuple(tensor.shape)

        return hook

    handles = [
        part.register_forward_hook(tracer(name))
        for name, part in module.named_modules()
    ]
    try:
        _forward(module, _match_dtype(module, inputs), model)
    finally:
        for handle in handles:
            handle.remove()
    parts = dict(module.named_modules())
    return [
        Run(
            name,
            shape,
            weighted=_has_weights(parts[name]),
            per_stimulus=len(inputs) in shape[:2],
        )
        for name, shape in shapes.items()
    ]


def _has_weights(module: torch.nn.Module) -> bool:
    """Whether a module, or one inside it, has a weight matrix or a kernel; a normalisation over several axes has none."""
    from torch.nn import LayerNorm

    return any(
        parameter.ndim > 1
        for part in module.modules()
        if not isinstance(part, LayerNorm)
        for parameter in part.parameters(recurse=False)
    )


def _forward(module: torch.nn.Module, inputs: torch.Tensor, model: str) -> object:
    """Return the output of the module; an error reports the type and shape of the input."""
    import torch

    try:
        return module(inputs)
    except torch.OutOfMemoryError:
        raise
    except REFUSALS as error:
        kind = str(inputs.dtype).removeprefix("torch.")
        raise ModelError(
            f"model {model!r}: {type(module).__name__} fails on its input, {kind} {tuple(inputs.shape)} "
            f"({type(error).__name__}: {error}); if the input has the wrong shape or type, change its preprocessing "
            "(resize, crop, colour)"
        ) from error


@contextmanager
def recording(
    module: torch.nn.Module,
    layers: Sequence[str],
    model: str,
    places: Mapping[str, Array],
) -> Iterator[dict[str, list[torch.Tensor]]]:
    """Record a copy of every output of the layers while the context is open: layer → outputs in order of the runs.

    A copy of the shape and type of its layer's place is there; those of several runs are then the last one.
    """
    import torch

    check_layers(module, layers, model)
    runs: dict[str, list[torch.Tensor]] = {}
    parts = dict(module.named_modules())

    def recorder(layer: str) -> Callable[[torch.nn.Module, object, object], None]:
        def hook(_module: torch.nn.Module, _inputs: object, output: object) -> None:
            # A copy, because a later layer may modify the output in place; in the order in which it is returned.
            tensor = _tensor(output, layer, model).detach()
            if _fits(tensor, places.get(layer)):
                copy = torch.from_numpy(places[layer]).copy_(tensor)
            else:
                copy = tensor.clone(memory_format=torch.contiguous_format)
            runs.setdefault(layer, []).append(copy)

        return hook

    handles = [
        parts[layer].register_forward_hook(recorder(layer))
        for layer in layers
        if layer in parts
    ]
    try:
        yield runs
    finally:
        for handle in handles:
            handle.remove()


def _fits(tensor: torch.Tensor, place: Array | None) -> bool:
    """Whether a place is for values of this shape, in single precision as these."""
    import torch

    return (
        place is not None
        and tensor.dtype == torch.float32
        and place.dtype == np.float32
        and tuple(tensor.shape) == place.shape
    )


def _tensor(output: object, layer: str, model: str) -> torch.Tensor:
    """Return the first tensor of an output; see :func:`_first_tensor`."""
    tensor = _first_tensor(output)
    if tensor is None:
        raise ModelError(
            f"model {model!r}, layer {layer!r} returns {type(output).__name__}, which contains no tensor"
        )
    return tensor


def _first_tensor(output: object) -> torch.Tensor | None:
    """Return the output itself, or the first tensor in a tuple, list or mapping (depth first); None without tensors."""
    import torch

    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, Mapping):
        output = list(output.values())
    for part in output if isinstance(output, (tuple, list)) else ():
        tensor = _first_tensor(part)
        if tensor is not None:
            return tensor
    return None


def _stack_runs(
    runs: Sequence[torch.Tensor], layer: str, count: int, model: str, steps: int | None
) -> Array:
    """Return the outputs of a layer as an array (stimulus, …), or (stimulus, step, …) with ``steps``."""
    import torch

    if not runs:
        raise ModelError(
            f"model {model!r}: layer {layer!r} did not run; record a layer that its forward pass uses"
        )
    if steps is not None and len(runs) == steps and steps > 1:
        values = torch.stack([run.cpu() for run in runs], dim=1)
    else:
        values = runs[-1].cpu()
    if values.ndim == 0:
        raise ModelError(
            f"model {model!r}, layer {layer!r} returns one number for {count} stimuli; record one with a row per stimulus"
        )
    if values.ndim == 1 and len(values) == count:
        values = values[:, None]
    if len(values) != count and values.ndim > 1 and values.shape[1] == count:
        # Recurrent and some attention layers have the stimuli on the second axis (sequence first).
        values = values.transpose(0, 1)
    if values.is_floating_point() and values.dtype != torch.float64:
        values = values.to(torch.float32)
    return np.asarray(values.contiguous().numpy())


def _match_dtype(module: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Convert inputs to the floating-point type of the module's weights."""
    first = next(
        (weights for weights in module.parameters() if weights.is_floating_point()),
        None,
    )
    if first is None or not inputs.is_floating_point():
        return inputs
    return inputs.to(first.dtype)


@contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Set evaluation mode while the context is open, then restore the mode of every submodule."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def _seed_of_batch(ids: Sequence[str]) -> int:
    """Return a number for a batch of stimuli, so that the draws of a stochastic module differ between batches."""
    return int.from_bytes(hashlib.sha256("\0".join(ids).encode()).digest()[:8])


AT_ONCE: Final = 2
"""Prepared batches at a time: the present one and the next."""


@dataclass
class Inputs:
    """Converts stimuli to the input of ``model``; declared steps run in threads, a user's function in the calling thread.

    ``preprocessing`` is declared steps, or a function of one RGB image that returns a tensor. A batch prepared by
    :meth:`ahead` is used once, and only for the same stimuli of the same set.
    """

    preprocessing: Preprocessing | Callable[..., object]
    model: str
    _pending: dict[tuple[str, ...], tuple[StimulusSet, Future[Singles]]] = field(
        default_factory=dict, repr=False
    )

    def __call__(self, stimuli: StimulusSet, ids: Sequence[str]) -> torch.Tensor:
        """Return the input (stimulus, …) for ``ids``, in that order.

        Raises
        ------
        ModelError
            Images have different sizes after preprocessing.
        DataError
            An image cannot be decoded or placed.
        """
        import torch

        if isinstance(self.preprocessing, Preprocessing):
            source, future = self._pending.pop(tuple(ids), (None, None))
            if future is not None and source is stimuli:
                return torch.from_numpy(future.result())
            return torch.from_numpy(self._prepare(stimuli, ids))
        tensors = [
            self._tensor(self.preprocessing(image)) for image in shown(stimuli, ids)
        ]
        sizes = sorted({tuple(tensor.shape) for tensor in tensors})
        if len(sizes) > 1:
            raise ModelError(
                f"model {self.model!r}: its preprocessing returns tensors of different shapes, {sizes[0]} and {sizes[1]}"
            )
        return torch.stack(tensors)

    def _tensor(self, value: object) -> torch.Tensor:
        import torch

        try:
            return torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ModelError(
                f"model {self.model!r}: its preprocessing returns {type(value).__name__}, not a tensor or an array ({error})"
            ) from error

    def ahead(self, stimuli: StimulusSet, ids: Sequence[str]) -> None:
        """Prepare the next batch in the background."""
        if isinstance(self.preprocessing, Preprocessing):
            future = _background(os.getpid()).submit(self._prepare, stimuli, ids)
            self._pending[tuple(ids)] = (stimuli, future)
            while len(self._pending) > AT_ONCE:  # left over from an interrupted pass
                self._pending.pop(next(iter(self._pending)))[1].cancel()

    def _prepare(self, stimuli: StimulusSet, ids: Sequence[str]) -> Singles:
        steps = self.preprocessing
        if not isinstance(steps, Preprocessing):
            raise TypeError("only declared preprocessing steps run in threads")
        steps.check(self.model)
        return steps.stack(list(shown_as(stimuli, ids, steps.one)), model=self.model)


@lru_cache(maxsize=1)
def _background(process: int) -> ThreadPoolExecutor:
    """Return the thread of this process that prepares batches; the images of a batch have their own threads."""
    return ThreadPoolExecutor(1, thread_name_prefix="neuroledger-batches")
