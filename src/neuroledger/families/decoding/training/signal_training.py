"""Training of networks by a recipe: optimiser, schedule, batches and early stopping."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neuroledger.data.arrays import Array, Floats
from neuroledger.data.memory import LazyRows, part_of
from neuroledger.errors import ModelError
from neuroledger.families.decoding.models.convolutional_decoders import limit_norms
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.protocols.fold_windows import (
    mean_and_spread,
    quartiles,
)
from neuroledger.families.decoding.training.adaptation import (
    FULL,
    Adaptation,
    Stage,
    ridge_targets,
    stages,
)
from neuroledger.families.decoding.training.decoding_recipes import TrainingRecipe
from neuroledger.families.decoding.training.probes import ridges
from neuroledger.families.decoding.training.read_ahead import (
    how_trained,
    read_ahead,
)
from neuroledger.families.decoding.training.text_reading import Texts
from neuroledger.families.decoding.training.training_objectives import objective_for
from neuroledger.models.devices import ON_DEMAND, Training, available, reproducible

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

__all__ = [
    "TrainedNetwork",
    "batch_sizes",
    "batches_of",
    "optimiser_of",
    "sampling_weights",
    "schedule_of",
]


def optimiser_of(recipe: TrainingRecipe, parameters: Iterable[nn.Parameter]) -> Any:
    """AdamW with weight decay, or Adam without, as published."""
    import torch

    if recipe.optimiser == "adam":
        return torch.optim.Adam(parameters, lr=recipe.learning_rate)
    return torch.optim.AdamW(
        parameters, lr=recipe.learning_rate, weight_decay=recipe.weight_decay
    )


def schedule_of(recipe: TrainingRecipe, optimiser: Any, steps: int) -> Any:
    """One cycle over all epochs of ``steps`` each, or a constant rate."""
    import torch

    if recipe.schedule == "constant":
        return torch.optim.lr_scheduler.ConstantLR(optimiser, factor=1.0)
    return torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        max_lr=recipe.learning_rate,
        total_steps=recipe.epochs * steps,
        pct_start=recipe.warm_up,
        div_factor=recipe.start_divisor,
        final_div_factor=recipe.end_divisor,
    )


def sampling_weights(targets: Tensor, recipe: TrainingRecipe) -> Tensor | None:
    """Sampling weights of the windows: one over the size of their class or bin; None for uniform sampling.

    Windows outside the bins have weight zero, since the published metric ignores them.

    Raises
    ------
    ModelError
        The targets are neither classes nor numbers in bins.
    """
    import torch

    if recipe.sampler == "shuffled":
        return None
    if targets.dtype == torch.long and targets.ndim == 1:
        groups = targets
        inside = torch.ones_like(targets, dtype=torch.bool)
    elif targets.ndim == 2 and targets.shape[1] == 1 and len(recipe.bins) > 1:
        edges = torch.tensor(recipe.bins, dtype=targets.dtype, device=targets.device)
        values = targets[:, 0].contiguous()
        groups = (torch.bucketize(values, edges, right=True) - 1).clamp(
            0, len(edges) - 2
        )
        inside = (values >= edges[0]) & (values <= edges[-1])
    else:
        raise ModelError(
            "a balanced sampler needs classes, or one number with `bins`: set `bins`, or `sampler: shuffled`"
        )
    if not inside.any():
        raise ModelError(f"no training window is within the bins {recipe.bins}")
    counts = torch.bincount(groups[inside], minlength=int(groups.max()) + 1).double()
    return torch.where(
        inside, 1.0 / counts[groups].clamp(min=1.0), torch.zeros(()).double()
    )


def batches_of(
    count: int,
    recipe: TrainingRecipe,
    rarity: Tensor | None,
    order: Generator,
    *,
    join: bool = False,
) -> Iterator[Any]:
    """Row numbers of the batches of one epoch: each window once, or as many weighted draws with replacement.

    With `join`, a last batch of one window is merged into the one before: some networks cannot normalise a single window.
    """
    import torch

    if rarity is None:
        rows = torch.randperm(count, generator=order)
    else:
        rows = torch.multinomial(rarity.cpu(), count, replacement=True, generator=order)
    return iter(rows.split(batch_sizes(count, recipe.batch, join=join)))


def batch_sizes(count: int, batch: int, *, join: bool) -> list[int]:
    """The sizes of the batches of an epoch: `batch`, then the remainder; with `join`, a remainder of one is merged."""
    sizes = [batch] * (count // batch)
    remainder = count - sum(sizes)
    if remainder == 1 and sizes and join:
        sizes[-1] += 1
    elif remainder:
        sizes.append(remainder)
    return sizes


class TrainedNetwork:
    """An estimator around a network; `fit` sets `epochs_` and `parameters_`.

    Without a given validation part, the recipe's share of the training windows of each class is used for it.
    Windows may be a view of a file: batches are then read when needed.
    """

    takes_rows = True

    def __init__(
        self,
        make: Callable[[Signature], Any],
        signature: Signature,
        recipe: TrainingRecipe,
        device: str = "cpu",
        breadth: int = 1,
        adapt: Adaptation = FULL,
        training: Training = ON_DEMAND,
    ) -> None:
        self.make, self.signature, self.device = make, signature, device
        self.adapt, self.training = adapt, training
        self.recipe, self.breadth = recipe.for_task(signature.recipe), breadth

    @property
    def threads(self) -> int:
        """Threads of the training; results are bit-identical only for the same number."""
        return self.recipe.threads

    def fit(self, x: Array | LazyRows, y: Array) -> TrainedNetwork:
        """Train on most windows, and use the rest for early stopping."""
        rng = np.random.default_rng(self.signature.seed)
        labels = (
            np.asarray(y).astype(str)
            if self.signature.objective == "classification"
            else np.zeros(len(y), dtype=str)
        )
        validation = np.zeros(len(y), dtype=bool)
        for label in np.unique(labels):
            rows = np.flatnonzero(labels == label)
            validation[
                rng.permutation(rows)[
                    : max(1, round(len(rows) * self.recipe.validation))
                ]
            ] = True
        if validation.all():
            raise ModelError(
                f"{len(y)} windows are too few for a training and a validation part: use more, or another decoder"
            )
        return self.fit_validated(
            part_of(x, ~validation),
            y[~validation],
            part_of(x, validation),
            y[validation],
        )

    def fit_validated(
        self,
        x: Array | LazyRows,
        y: Array,
        validation_x: Array | LazyRows,
        validation_y: Array,
    ) -> TrainedNetwork:
        """Train on windows `x`, (window, channel, sample), and keep the state that is best on the validation part."""
        with self._repeatable():
            return self._train(x, y, validation_x, validation_y)

    def _train(
        self,
        x: Array | LazyRows,
        y: Array,
        validation_x: Array | LazyRows,
        validation_y: Array,
    ) -> TrainedNetwork:

        self._learn_scale(x)
        self.objective_ = objective_for(self.signature, self.recipe, y)
        if self.signature.objective == "classification":
            self.classes_ = np.unique(y)
        device = available(self.device)
        targets, validation_targets = (
            self.objective_.targets(part).to(device) for part in (y, validation_y)
        )
        inputs = self._inputs(x)
        validation_inputs = self._inputs(validation_x)
        network = self.make(self.signature).to(device)
        self._probe(network, inputs)
        parts = _Parts(y, inputs, targets, validation_inputs, validation_targets)
        self.losses_: list[float] = []
        example = next(iter(inputs.split(2)))
        outputs = self.signature.outputs
        for stage in stages(self.adapt, network, outputs, example):
            whole = stage.network.parameters()
            trained = stage.parameters
            self.parameters_ = sum(part.numel() for part in whole)
            count = sum(part.numel() for part in trained)
            if self.adapt.name == "ridge_probe":
                self._solve(stage.network, parts)
            else:
                self._descend(stage, parts)
            self.network_ = stage.network.eval()
        self.notes_ = tuple(getattr(network, "notes", ()))
        if self.adapt != FULL:
            self.notes_ += (
                f"adapted: {self.adapt.name}, {count:,} parameters trained",
            )
        if self.training != ON_DEMAND:
            self.notes_ += (how_trained(self.training, device.type),)
        if isinstance(self.objective_, Texts):
            self.objective_.breadth = self.breadth
        return self

    def _descend(self, stage: Stage, parts: _Parts) -> None:
        """Train the parameters of a stage by the recipe, and load the state that is best on the validation part."""
        import torch

        recipe = self.recipe
        network = stage.network
        inputs = parts.inputs
        loss = self.objective_.loss(parts.targets)
        rarity = (
            None
            if recipe.sampler == "shuffled"
            else sampling_weights(self.objective_.sampling_targets(parts.y), recipe)
        )
        optimiser = optimiser_of(recipe, stage.parameters)
        join = len(inputs) % recipe.batch == 1 and not self._takes_one(network, inputs)
        schedule = schedule_of(
            recipe, optimiser, len(batch_sizes(len(inputs), recipe.batch, join=join))
        )
        order = torch.Generator().manual_seed(self.signature.seed)
        best = -np.inf
        best_state = None
        epochs_without_gain = 0
        for epoch in range(recipe.epochs):
            stage.train()
            batches = batches_of(len(inputs), recipe, rarity, order, join=join)
            for rows, windows in read_ahead(inputs, batches, self.training.workers):
                optimiser.zero_grad()
                value = loss(self._forward(network, windows), parts.targets[rows])
                value.backward()
                if recipe.gradient_norm:
                    torch.nn.utils.clip_grad_norm_(
                        stage.parameters, recipe.gradient_norm
                    )
                optimiser.step()
                schedule.step()
                limit_norms(network)
            monitor_value = self._monitor_value(
                network, parts.validation_inputs, parts.validation_targets, loss
            )
            self.epochs_ = epoch + 1
            self._tell(self.epochs_)
            self.losses_.append(float(value.detach()))
            if not np.isfinite(self.losses_[-1]):
                raise ModelError(
                    f"training diverged in epoch {epoch + 1}: lower the learning rate or check the units"
                )
            if best_state is None or monitor_value > best:
                best = monitor_value
                epochs_without_gain = 0
                best_state = {
                    name: state.clone() for name, state in network.state_dict().items()
                }
            else:
                epochs_without_gain += 1
                if epochs_without_gain >= recipe.patience:
                    self._tell(recipe.epochs)
                    break
        network.load_state_dict(best_state)

    def _tell(self, epochs: int) -> None:
        """Report the epochs that are done; all of them, if training stops early."""
        if self.training.tell is not None:
            self.training.tell("training", epochs, self.recipe.epochs)

    def _forward(self, network: Any, windows: Any) -> Any:
        """Outputs of the network; on a graphics card from products in bfloat16, if this is asked for."""
        import torch

        if not (self.training.mixed and available(self.device).type == "cuda"):
            return network(windows)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return network(windows).float()

    def _solve(self, probed: Any, parts: _Parts) -> None:
        """Solve the linear layer of a probe for every penalty, and keep the one that is best on the validation part."""
        import torch

        if any(part.requires_grad for part in probed.network.parameters()):
            raise ModelError(
                "a ridge probe is solved, not trained, and cannot learn an adapter of channels: use `linear_probe`"
            )
        signature, self.epochs_ = self.signature, 0
        targets, weights = ridge_targets(
            parts.targets.double().cpu().numpy(),
            signature.objective,
            signature.outputs,
            weighted=self.recipe.class_weights,
        )
        probed.eval()
        features, validation = (
            self._features(probed, inputs)
            for inputs in (parts.inputs, parts.validation_inputs)
        )
        loss = self.objective_.loss(parts.targets)
        best = -np.inf
        chosen = None
        for coefficients, bias in ridges(features, targets, weights):
            outputs = (validation @ coefficients.T + bias).astype(np.float32)
            value = self._monitored(outputs, parts.validation_targets, loss)
            if chosen is None or value > best:
                best = value
                chosen = (coefficients, bias)
        assert chosen is not None
        with torch.no_grad():
            for parameter, values in zip(
                (probed.head.weight, probed.head.bias), chosen, strict=True
            ):
                parameter.copy_(torch.from_numpy(values))

    def _monitored(self, outputs: Array, targets: Any, loss: Any) -> float:
        """What early stopping monitors, of outputs (window, output); higher is better."""
        import torch

        if self.recipe.monitor != "loss":
            return self.objective_.monitor_value(outputs, targets)
        return -float(loss(torch.from_numpy(outputs).to(targets.device), targets))

    def _features(self, probed: Any, inputs: Any) -> Floats:
        """What the linear layer of a probe receives, (window, feature), in double precision."""
        import torch

        with torch.inference_mode():
            parts = [
                probed.features(part).double().cpu().numpy()
                for part in inputs.split(max(1, self.recipe.batch))
            ]
        return np.concatenate(parts)

    def _probe(self, network: Any, inputs: Any) -> None:
        """Pass two windows through the network, to report invalid outputs before training and to initialise lazy layers.

        The random state is restored afterwards.
        """
        import torch

        random_state = torch.get_rng_state()
        network.eval()
        with torch.no_grad():
            self.objective_.to_array(network(next(iter(inputs.split(2)))))
        torch.set_rng_state(random_state)

    def _takes_one(self, network: Any, inputs: Any) -> bool:
        """Whether the network can be trained on a batch of one window; the random state is restored afterwards."""
        import torch

        random_state = torch.get_rng_state()
        try:
            with torch.no_grad():
                copy.deepcopy(network).train()(next(iter(inputs.split(1))))
        except ValueError:
            return False
        finally:
            torch.set_rng_state(random_state)
        return True

    def predict(self, x: Array | LazyRows) -> Array:
        """Predicted labels, texts, or numbers or embeddings in their own units."""
        return self.objective_.answers(self._outputs(self.network_, self._inputs(x)))

    def predict_proba(self, x: Array | LazyRows) -> Array:
        """Probabilities, (window, class) or (window, label)."""
        return self.objective_.probabilities(
            self._outputs(self.network_, self._inputs(x))
        )

    def _learn_scale(self, x: Array | LazyRows) -> None:
        if self.recipe.scale == "robust":
            low, middle, high = quartiles(x)
            centre = middle
            spread = high - low
        elif self.recipe.scale == "standard":
            centre, spread = mean_and_spread(x)
        else:
            centre = np.zeros(x.shape[1])
            spread = np.ones(x.shape[1])
        self.centre_, self.spread_ = (
            centre[:, None],
            np.where(spread > 0, spread, 1.0)[:, None],
        )

    @contextmanager
    def _repeatable(self) -> Iterator[None]:
        """Set the seed, the device's algorithms, and the number of threads, which affects the last bits of a training."""
        import torch

        before = torch.get_num_threads()
        with reproducible(available(self.device), self.signature.seed):
            torch.set_num_threads(self.recipe.threads)
            try:
                yield
            finally:
                torch.set_num_threads(before)

    def _inputs(self, x: Array | LazyRows) -> Any:
        """The inputs of the network: a tensor, or for a view an object that computes the tensors of its batches."""
        if isinstance(x, LazyRows):
            return _Batches(x, self._tensor)
        return self._tensor(x)

    def _tensor(self, x: Array) -> Any:
        import torch

        limit = self.recipe.clamp or np.inf
        scaled = np.clip((x - self.centre_) / self.spread_, -limit, limit)
        return torch.from_numpy(scaled.astype(np.float32)).to(available(self.device))

    def _monitor_value(
        self, network: Any, inputs: Any, targets: Any, loss: Callable[[Any, Any], Any]
    ) -> float:
        """The value that early stopping monitors; higher is better."""
        import torch

        if self.recipe.monitor != "loss":
            return self.objective_.monitor_value(
                self._outputs(network, inputs), targets
            )
        network.eval()
        size = max(1, self.recipe.batch)
        with torch.inference_mode(), self._repeatable():
            parts = zip(inputs.split(size), targets.split(size), strict=True)
            return -sum(
                float(loss(network(part), target)) * len(part) for part, target in parts
            ) / len(inputs)

    def _outputs(self, network: Any, inputs: Any) -> Array:
        import torch

        network.eval()
        with torch.inference_mode(), self._repeatable():
            parts = inputs.split(max(1, self.recipe.batch))
            return np.concatenate(
                [self.objective_.to_array(network(part)) for part in parts]
            )


class _Parts(NamedTuple):
    """The training part (its targets `y` as given, inputs and targets of the network) and the validation part."""

    y: Array
    inputs: Any
    targets: Any
    validation_inputs: Any
    validation_targets: Any


class _Batches:
    """Windows as tensors, computed on demand; the part of the tensor API that training needs."""

    def __init__(self, x: LazyRows, make: Callable[[Array], Any]) -> None:
        self._x, self._make = x, make

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, rows: Any) -> Any:
        return self._make(self._x[rows.cpu().numpy()])

    def split(self, size: int) -> Iterator[Any]:
        """Tensors of ``size`` windows, in order."""
        for start in range(0, len(self._x), size):
            yield self._make(self._x[start : start + size])
