"""The steps of a training as a recipe has them: optimiser, schedule, and in which order windows are seen."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.data.memory import LazyRows, part_of
from neuroledger.errors import ModelError
from neuroledger.families.decoding.models.convolutional_decoders import limit_norms
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.protocols.fold_windows import mean_and_spread, quartiles
from neuroledger.families.decoding.training.decoding_recipes import TrainingRecipe
from neuroledger.families.decoding.training.text_reading import Texts
from neuroledger.families.decoding.training.training_objectives import learnt

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

__all__ = ["TrainedNetwork", "batch_sizes", "batches_of", "optimiser_of", "rarity_of", "schedule_of"]


def optimiser_of(recipe: TrainingRecipe, network: nn.Module) -> Any:
    """AdamW with its decay, or Adam without, as published."""
    import torch

    if recipe.optimiser == "adam":
        return torch.optim.Adam(network.parameters(), lr=recipe.learning_rate)
    return torch.optim.AdamW(network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)


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


def rarity_of(targets: Tensor, recipe: TrainingRecipe) -> Tensor | None:
    """How likely each window is to be drawn: one over how many are of its class or bin; None where all are alike.

    Windows outside the bins are never drawn, as the published metric passes them over.

    Raises
    ------
    ModelError
        The targets are neither classes nor numbers in bins.
    """
    import torch

    if recipe.sampler == "shuffled":
        return None
    if targets.dtype == torch.long and targets.ndim == 1:
        groups, inside = targets, torch.ones_like(targets, dtype=torch.bool)
    elif targets.ndim == 2 and targets.shape[1] == 1 and len(recipe.bins) > 1:
        edges = torch.tensor(recipe.bins, dtype=targets.dtype, device=targets.device)
        values = targets[:, 0].contiguous()
        groups = (torch.bucketize(values, edges, right=True) - 1).clamp(0, len(edges) - 2)
        inside = (values >= edges[0]) & (values <= edges[-1])
    else:
        raise ModelError(
            "a balanced sampler needs classes, or one number with `bins`: give them, or `sampler: shuffled`"
        )
    if not inside.any():
        raise ModelError(f"no training window is within the bins {recipe.bins}")
    counts = torch.bincount(groups[inside], minlength=int(groups.max()) + 1).double()
    return torch.where(inside, 1.0 / counts[groups].clamp(min=1.0), torch.zeros(()).double())


def batches_of(
    count: int, recipe: TrainingRecipe, rarity: Tensor | None, order: Generator, *, join: bool = False
) -> Iterator[Any]:
    """Row numbers of the batches of one epoch: each window once, or as many draws by rarity.

    With `join`, a last batch of one window joins the one before: some networks cannot normalise a window by itself.
    """
    import torch

    if rarity is None:
        rows = torch.randperm(count, generator=order)
    else:
        rows = torch.multinomial(rarity.cpu(), count, replacement=True, generator=order)
    return iter(rows.split(batch_sizes(count, recipe.batch, join=join)))


def batch_sizes(count: int, batch: int, *, join: bool) -> list[int]:
    """How many windows each batch of an epoch has: `batch`, then what is left; with `join`, no single one is left."""
    sizes = [batch] * (count // batch)
    left = count - sum(sizes)
    if left == 1 and sizes and join:
        sizes[-1] += 1
    elif left:
        sizes.append(left)
    return sizes


class TrainedNetwork:
    """An estimator around a network; after `fit`, `epochs_` and `parameters_` tell how it went.

    Without a validation part of its own, the recipe's share of the training windows is set apart, of each class alike.
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
    ) -> None:
        self.make, self.signature, self.device = make, signature, device
        self.recipe, self.breadth = recipe.for_task(signature.recipe), breadth

    @property
    def threads(self) -> int:
        """Threads of the training; another number gives other bits."""
        return self.recipe.threads

    def fit(self, x: Array | LazyRows, y: Array) -> TrainedNetwork:
        """Train on most windows, stop by the rest."""
        rng = np.random.default_rng(self.signature.seed)
        labels = (
            np.asarray(y).astype(str)
            if self.signature.objective == "classification"
            else np.zeros(len(y), dtype=str)
        )
        watched = np.zeros(len(y), dtype=bool)
        for label in np.unique(labels):
            rows = np.flatnonzero(labels == label)
            watched[rng.permutation(rows)[: max(1, round(len(rows) * self.recipe.validation))]] = True
        if watched.all():
            raise ModelError(
                f"{len(y)} windows are too few to train and to watch: give more, or another decoder"
            )
        return self.fit_validated(part_of(x, ~watched), y[~watched], part_of(x, watched), y[watched])

    def fit_validated(
        self, x: Array | LazyRows, y: Array, watched_x: Array | LazyRows, watched_y: Array
    ) -> TrainedNetwork:
        """Train on (window, channel, sample) `x`; keep the state that does best on the watched windows."""
        with _threads(self.recipe.threads):
            return self._train(x, y, watched_x, watched_y)

    def _train(
        self, x: Array | LazyRows, y: Array, watched_x: Array | LazyRows, watched_y: Array
    ) -> TrainedNetwork:
        import torch

        recipe = self.recipe
        self._learn_scale(x)
        self.learnt_ = learnt(self.signature, recipe, y)
        if self.signature.objective == "classification":
            self.classes_ = np.unique(y)
        targets, watched = (self.learnt_.targets(part).to(self.device) for part in (y, watched_y))
        inputs, watched_inputs = self._inputs(x), self._inputs(watched_x)
        torch.manual_seed(self.signature.seed)
        network = self.make(self.signature).to(self.device)
        self._tried(network, inputs)
        self.parameters_ = sum(parameter.numel() for parameter in network.parameters())
        loss = self.learnt_.loss(targets)
        rarity = None if recipe.sampler == "shuffled" else rarity_of(self.learnt_.grouped(y), recipe)
        optimiser = optimiser_of(recipe, network)
        join = len(inputs) % recipe.batch == 1 and not self._takes_one(network, inputs)
        schedule = schedule_of(recipe, optimiser, len(batch_sizes(len(inputs), recipe.batch, join=join)))
        order = torch.Generator().manual_seed(self.signature.seed)
        best, kept, waited = -np.inf, None, 0
        for epoch in range(recipe.epochs):
            network.train()
            for rows in batches_of(len(inputs), recipe, rarity, order, join=join):
                optimiser.zero_grad()
                value = loss(network(inputs[rows]), targets[rows])
                value.backward()
                if recipe.gradient_norm:
                    torch.nn.utils.clip_grad_norm_(network.parameters(), recipe.gradient_norm)
                optimiser.step()
                schedule.step()
                limit_norms(network)
            goodness = self._goodness(network, watched_inputs, watched, loss)
            self.epochs_ = epoch + 1
            if not np.isfinite(float(value.detach())):
                raise ModelError(
                    f"training diverged in epoch {epoch + 1}: lower the learning rate or check the units"
                )
            if kept is None or goodness > best:
                best, waited = goodness, 0
                kept = {name: state.clone() for name, state in network.state_dict().items()}
            else:
                waited += 1
                if waited >= recipe.patience:
                    break
        network.load_state_dict(kept)
        self.network_ = network.eval()
        if isinstance(self.learnt_, Texts):
            self.learnt_.breadth = self.breadth
        return self

    def _tried(self, network: Any, inputs: Any) -> None:
        """Show the network two windows, so that wrong answers are reported before training; lazy layers take their shape.

        Chance is as it was afterwards.
        """
        import torch

        chance = torch.get_rng_state()
        network.eval()
        with torch.no_grad():
            self.learnt_.kept(network(next(iter(inputs.split(2)))))
        torch.set_rng_state(chance)

    def _takes_one(self, network: Any, inputs: Any) -> bool:
        """Whether a copy of the network can be trained on one window by itself; chance is as it was afterwards."""
        import torch

        chance = torch.get_rng_state()
        try:
            with torch.no_grad():
                copy.deepcopy(network).train()(next(iter(inputs.split(1))))
        except ValueError:
            return False
        finally:
            torch.set_rng_state(chance)
        return True

    def predict(self, x: Array | LazyRows) -> Array:
        """Labels, texts, or numbers or embeddings in their own units."""
        return self.learnt_.answers(self._outputs(self.network_, self._inputs(x)))

    def predict_proba(self, x: Array | LazyRows) -> Array:
        """Probabilities, (window, class) or (window, label)."""
        return self.learnt_.probabilities(self._outputs(self.network_, self._inputs(x)))

    def _learn_scale(self, x: Array | LazyRows) -> None:
        if self.recipe.scale == "robust":
            low, middle, high = quartiles(x)
            centre, spread = middle, high - low
        elif self.recipe.scale == "standard":
            centre, spread = mean_and_spread(x)
        else:
            centre, spread = np.zeros(x.shape[1]), np.ones(x.shape[1])
        self.centre_, self.spread_ = centre[:, None], np.where(spread > 0, spread, 1.0)[:, None]

    def _inputs(self, x: Array | LazyRows) -> Any:
        """What the network is shown: a tensor, or of a view something that gives the tensors of its batches."""
        return _Batches(x, self._tensor) if isinstance(x, LazyRows) else self._tensor(x)

    def _tensor(self, x: Array) -> Any:
        import torch

        limit = self.recipe.clamp or np.inf
        scaled = np.clip((x - self.centre_) / self.spread_, -limit, limit)
        return torch.from_numpy(scaled.astype(np.float32)).to(self.device)

    def _goodness(self, network: Any, inputs: Any, targets: Any, loss: Callable[[Any, Any], Any]) -> float:
        """What early stopping watches; higher is better."""
        import torch

        if self.recipe.monitor != "loss":
            return self.learnt_.goodness(self._outputs(network, inputs), targets)
        network.eval()
        size = max(1, self.recipe.batch)
        with torch.inference_mode(), _threads(self.recipe.threads):
            parts = zip(inputs.split(size), targets.split(size), strict=True)
            return -sum(float(loss(network(part), wanted)) * len(part) for part, wanted in parts) / len(
                inputs
            )

    def _outputs(self, network: Any, inputs: Any) -> Array:
        import torch

        network.eval()
        with torch.inference_mode(), _threads(self.recipe.threads):
            parts = inputs.split(max(1, self.recipe.batch))
            return np.concatenate([self.learnt_.kept(network(part)) for part in parts])


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


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Set the number of threads, restored afterwards: it changes the bits of a training."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
