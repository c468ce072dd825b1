"""Images become a torch module's input, and its named layers are recorded by hooks, the same numbers every time."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from neuroledger.data.screen import shown, shown_as
from neuroledger.data.stimuli import StimulusSet
from neuroledger.data.threads import exclusive
from neuroledger.errors import ModelError, UnavailableError
from neuroledger.models.activations import Trial
from neuroledger.models.model import unknown
from neuroledger.models.preprocessing import Preprocessing, look

if TYPE_CHECKING:
    import torch

    from neuroledger.models.preprocessing import Preprocessing

Array = NDArray[Any]

# What a module raises on an input that is not for it.
REFUSALS: Final = (
    RuntimeError, ValueError, TypeError, LookupError, AttributeError, AssertionError, ArithmeticError
)  # fmt: skip

OUTPUT: Final = "output"
"""Name under which a module's own output is recorded, unless one of its parts is called so."""


@dataclass(frozen=True)
class TorchExtract:
    """A function from stimuli to the activations of ``module``; see :class:`neuroledger.models.activations.Extract`.

    ``inputs`` turns images into the module's input. ``steps``: the module answers in so many time steps, as a layer
    that runs once in each, or as an axis of the output after the stimuli's. ``microsaccades``: the degrees that the
    input spans, where every trial looks at a slightly different place. Otherwise a layer that runs several times is
    read at its last run. A batch that the device cannot hold is halved until it can.
    """

    module: torch.nn.Module
    inputs: Inputs
    device: str = "cpu"
    steps: int | None = None
    seed: int = 0
    microsaccades: float | None = None

    def __call__(
        self, stimuli: StimulusSet, stimulus_ids: Sequence[str], layers: Sequence[str], trial: Trial
    ) -> dict[str, Array]:
        """Layer → (stimulus, …) for the stimuli named."""
        inputs = self.inputs(stimuli, stimulus_ids)
        if self.microsaccades is not None:
            inputs = _moved(inputs, trial, self.microsaccades)
        place = available(self.device)
        seed = [self.seed, trial.number, *_number(stimulus_ids)]
        with exclusive():
            self.module.to(place)
            return self._run(inputs, layers, place, seed)

    def _run(
        self, inputs: torch.Tensor, layers: Sequence[str], place: torch.device, seed: Sequence[int]
    ) -> dict[str, Array]:
        with _evaluating(self.module), _reproducible(place, seed):
            return _run(self.module, inputs, layers, place, self.inputs.model, self.steps)

    def ahead(self, stimuli: StimulusSet, stimulus_ids: Sequence[str]) -> None:
        """Prepare the input of the batch that comes next while this one is computed."""
        self.inputs.ahead(stimuli, stimulus_ids)


def extractor(
    module: torch.nn.Module,
    preprocessing: Preprocessing | Callable[..., Any],
    *,
    model: str,
    device: str = "cpu",
    steps: int | None = None,
    seed: int = 0,
    microsaccades: float | None = None,
) -> TorchExtract:
    """The activations of ``module`` as a function of stimuli.

    ``preprocessing`` turns images into the module's input: a declared one, or a function of one RGB image that
    returns a tensor. The other parameters are those of :class:`TorchExtract`.
    """
    return TorchExtract(module, Inputs(preprocessing, model), device, steps, seed, microsaccades)


def check_layers(module: torch.nn.Module, layers: Sequence[str], model: str) -> None:
    """Return if the module has all ``layers``.

    Raises
    ------
    ModelError
        Naming every layer that it lacks, and what may have been meant.
    """
    known = [name for name, _ in module.named_modules() if name]
    missing = [layer for layer in layers if layer not in known and layer != OUTPUT]
    if missing:
        raise ModelError(
            f"model {model!r} has no " + "; no ".join(unknown("layer", name, known) for name in missing)
        )


def available(device: str) -> torch.device:
    """The torch device of that name; ``auto`` is the fastest one here.

    Raises
    ------
    UnavailableError
        This machine or this torch does not have it.
    """
    import torch

    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if device == "auto":
        device = next(name for name in ("cuda", "mps", "cpu") if there[name])
    kind = device.split(":")[0]
    if not there.get(kind, False):
        usable = ", ".join(name for name, yes in there.items() if yes)
        raise UnavailableError(f"device {device!r} is not available here; use one of: auto, {usable}")
    return torch.device(device)


def state_sha256(module: torch.nn.Module) -> str:
    """Hash of all parameters and buffers by name: what a module in memory has learnt so far."""
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        if not hasattr(tensor, "detach"):
            continue
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name}:{values.dtype}:{tuple(values.shape)}:".encode())
        digest.update(values.reshape(-1).view(_bytes()).numpy().tobytes())
    return digest.hexdigest()


def in_memory(module: torch.nn.Module, described: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
    """Identity of a module that only lives in this process, for its present weights."""
    token = uuid.uuid4().hex

    def identity() -> dict[str, Any]:
        return {**described, "process": token, "state": state_sha256(module)}

    return identity


def _bytes() -> torch.dtype:
    import torch

    return torch.uint8


def _moved(inputs: torch.Tensor, trial: Trial, degrees: float) -> torch.Tensor:
    """Images (stimulus, channel, height, width) as seen in one trial."""
    import torch

    return torch.from_numpy(look(inputs.numpy(), trial.number, trial.of, degrees))


def _run(
    module: torch.nn.Module,
    inputs: torch.Tensor,
    layers: Sequence[str],
    device: torch.device,
    model: str,
    steps: int | None,
) -> dict[str, Array]:
    """One forward pass, in halves where memory does not suffice."""
    import torch

    try:
        with recording(module, layers, model) as runs, torch.inference_mode():
            answer = _forward(module, _like(module, inputs.to(device)), model)
        if OUTPUT in layers and OUTPUT not in runs:
            runs[OUTPUT] = [_tensor(answer, OUTPUT, model)]
        return {layer: _whole(runs.get(layer, []), layer, len(inputs), model, steps) for layer in layers}
    except torch.OutOfMemoryError:
        if len(inputs) == 1:
            raise ModelError(
                f"model {model!r}: {device} cannot hold it with one stimulus; use `device: cpu`, or name fewer layers"
            ) from None
    torch.cuda.empty_cache()
    half = len(inputs) // 2
    parts = [_run(module, part, layers, device, model, steps) for part in (inputs[:half], inputs[half:])]
    return {layer: np.concatenate([part[layer] for part in parts]) for layer in layers}


def _forward(module: torch.nn.Module, inputs: torch.Tensor, model: str) -> Any:
    """What the module gives; what it cannot take is said with the input that it was given."""
    import torch

    try:
        return module(inputs)
    except torch.OutOfMemoryError:
        raise
    except REFUSALS as error:
        kind = str(inputs.dtype).removeprefix("torch.")
        raise ModelError(
            f"model {model!r}: {type(module).__name__} fails on its input, {kind} {tuple(inputs.shape)} "
            f"({type(error).__name__}: {error}); if that is not what it takes, change its preprocessing "
            "(resize, crop, colour)"
        ) from error


@contextmanager
def recording(
    module: torch.nn.Module, layers: Sequence[str], model: str
) -> Iterator[dict[str, list[torch.Tensor]]]:
    """While open, every run of the layers is copied: layer → what it gave, run by run."""
    check_layers(module, layers, model)
    runs: dict[str, list[torch.Tensor]] = {}
    named = dict(module.named_modules())

    def keep(layer: str) -> Callable[[torch.nn.Module, Any, Any], None]:
        def hook(_module: torch.nn.Module, _inputs: Any, output: Any) -> None:
            # A copy, because a later layer may work in place.
            runs.setdefault(layer, []).append(_tensor(output, layer, model).detach().clone())

        return hook

    handles = [named[layer].register_forward_hook(keep(layer)) for layer in layers if layer in named]
    try:
        yield runs
    finally:
        for handle in handles:
            handle.remove()


def _tensor(output: Any, layer: str, model: str) -> torch.Tensor:
    """The first tensor of an output: itself, or that of a tuple, a list or a mapping (depth first)."""
    import torch

    if isinstance(output, torch.Tensor):
        return output
    if isinstance(output, Mapping):
        output = list(output.values())
    for part in output if isinstance(output, (tuple, list)) else ():
        if isinstance(part, (torch.Tensor, tuple, list, Mapping)):
            return _tensor(part, layer, model)
    raise ModelError(f"model {model!r}, layer {layer!r} gives {type(output).__name__}, which holds no tensor")


def _whole(runs: Sequence[torch.Tensor], layer: str, count: int, model: str, steps: int | None) -> Array:
    """What a layer gave as an array (stimulus, …), or (stimulus, step, …) with ``steps``."""
    import torch

    if not runs:
        raise ModelError(
            f"model {model!r}: layer {layer!r} did not run; record one that its forward pass uses"
        )
    if steps is not None and len(runs) == steps and steps > 1:
        values = torch.stack([run.cpu() for run in runs], dim=1)
    else:
        values = runs[-1].cpu()
    if values.ndim == 0:
        raise ModelError(
            f"model {model!r}, layer {layer!r} gives one number for {count} stimuli; record a layer with a row for each"
        )
    if values.ndim == 1 and len(values) == count:
        values = values[:, None]
    if len(values) != count and values.ndim > 1 and values.shape[1] == count:
        # Sequence first: recurrent and some attention layers put the stimuli on the second axis.
        values = values.transpose(0, 1)
    if values.is_floating_point() and values.dtype != torch.float64:
        values = values.to(torch.float32)
    return np.asarray(values.contiguous().numpy())


def _like(module: torch.nn.Module, inputs: torch.Tensor) -> torch.Tensor:
    """Inputs in the floating-point type of the module's weights."""
    first = next((weights for weights in module.parameters() if weights.is_floating_point()), None)
    return inputs if first is None or not inputs.is_floating_point() else inputs.to(first.dtype)


@contextmanager
def _evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Evaluation mode, and back to what every part was in."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextmanager
def _reproducible(device: torch.device, seed: Sequence[int]) -> Iterator[None]:
    """A generator seeded here and, beside the CPU, deterministic algorithms in full precision; all put back after."""
    import torch

    places = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=places):
        torch.manual_seed(int(np.random.SeedSequence(list(seed)).generate_state(1, np.uint64)[0]) >> 1)
        if device.type == "cpu":
            # Already deterministic; asking for it would import torch's compiler, which takes seconds.
            yield
            return
        with _deterministic():
            yield


@contextmanager
def _deterministic() -> Iterator[None]:
    import torch

    # cuBLAS adds in a fixed order only with a workspace of its own; it reads this when it starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    enabled = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    flags = cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    torch.use_deterministic_algorithms(True, warn_only=True)
    cudnn.benchmark = cudnn.allow_tf32 = matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=only_warns)
        cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = flags


def _number(ids: Sequence[str]) -> list[int]:
    """A batch of stimuli as a number, so that a stochastic module draws anew for each."""
    return [int.from_bytes(hashlib.sha256("\0".join(ids).encode()).digest()[:8])]


Floats = NDArray[np.float32]

AT_ONCE: Final = 2
"""The batch that is asked for and the one after it."""


@dataclass
class Inputs:
    """The input of ``model`` for stimuli; declared steps run in threads, a function of the user's only where it is called.

    What was prepared :meth:`ahead` is used once, and only for the same stimuli of the same set.
    """

    preprocessing: Preprocessing | Callable[..., Any]
    model: str
    _begun: dict[tuple[str, ...], tuple[StimulusSet, Future[Floats]]] = field(
        default_factory=dict, repr=False
    )

    def __call__(self, stimuli: StimulusSet, ids: Sequence[str]) -> torch.Tensor:
        """(stimulus, …) for ``ids``, in that order.

        Raises
        ------
        ModelError
            Images end up with different sizes.
        DataError
            An image cannot be decoded or placed.
        """
        import torch

        if isinstance(self.preprocessing, Preprocessing):
            of, begun = self._begun.pop(tuple(ids), (None, None))
            if begun is not None and of is stimuli:
                return torch.from_numpy(begun.result())
            return torch.from_numpy(self._prepared(stimuli, ids))
        tensors = [self._tensor(self.preprocessing(image)) for image in shown(stimuli, ids)]
        sizes = sorted({tuple(tensor.shape) for tensor in tensors})
        if len(sizes) > 1:
            raise ModelError(
                f"model {self.model!r}: its preprocessing gives tensors of several shapes, {sizes[0]} and {sizes[1]}"
            )
        return torch.stack(tensors)

    def _tensor(self, made: Any) -> torch.Tensor:
        import torch

        try:
            return torch.as_tensor(made)
        except (TypeError, ValueError, RuntimeError) as error:
            raise ModelError(
                f"model {self.model!r}: its preprocessing gives {type(made).__name__}, not a tensor or an array ({error})"
            ) from error

    def ahead(self, stimuli: StimulusSet, ids: Sequence[str]) -> None:
        """Begin with what will be asked for next."""
        if isinstance(self.preprocessing, Preprocessing):
            begun = _background(os.getpid()).submit(self._prepared, stimuli, ids)
            self._begun[tuple(ids)] = (stimuli, begun)
            while len(self._begun) > AT_ONCE:  # of a pass that ended before its time
                self._begun.pop(next(iter(self._begun)))[1].cancel()

    def _prepared(self, stimuli: StimulusSet, ids: Sequence[str]) -> Floats:
        steps = self.preprocessing
        if not isinstance(steps, Preprocessing):
            raise TypeError("only declared steps are prepared in threads")
        steps.check(self.model)
        return steps.stack(list(shown_as(stimuli, ids, steps.one)), model=self.model)


@lru_cache(maxsize=1)
def _background(process: int) -> ThreadPoolExecutor:
    """One thread that prepares batches, for this process; the images of a batch have threads of their own."""
    return ThreadPoolExecutor(1, thread_name_prefix="neuroledger-batches")
