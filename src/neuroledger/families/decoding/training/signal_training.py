"""A torch network trained on windows of a signal by a recipe, with early stopping and one seed for everything."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from neuroledger.data.lazy_rows import LazyRows, part_of
from neuroledger.errors import ModelError
from neuroledger.families.decoding.models.convolutional_decoders import limit_norms
from neuroledger.families.decoding.protocols.channel_statistics import mean_and_spread, quartiles
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.decoding_recipes import TrainingRecipe
from neuroledger.families.decoding.training.text_reading import Texts
from neuroledger.families.decoding.training.training_objectives import learnt
from neuroledger.families.decoding.training.training_steps import (
    batch_sizes,
    batches_of,
    optimiser_of,
    rarity_of,
    schedule_of,
)

__all__ = ["TrainedNetwork"]

Array = npt.NDArray[Any]


class TrainedNetwork:
    """An estimator around a network; after `fit`, `epochs_` and `parameters_` tell how it went.

    Without a validation part of its own, the recipe's share of the training windows is set apart, of each class alike.
    Windows may be a view of what lies on the disk: batches are then read as they are needed.
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
        return self.fit_watching(part_of(x, ~watched), y[~watched], part_of(x, watched), y[watched])

    def fit_watching(
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
        """Show the network two windows, so that wrong answers are told before hours of training; lazy layers take shape.

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
    """Windows as tensors, made when they are asked for; the part of a tensor's manners that training needs."""

    def __init__(self, x: LazyRows, make: Callable[[Array], Any]) -> None:
        self._x, self._make = x, make

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, rows: Any) -> Any:
        return self._make(self._x[rows.cpu().numpy()])

    def split(self, size: int) -> Iterator[Any]:
        """Tensors of so many windows, in order."""
        for start in range(0, len(self._x), size):
            yield self._make(self._x[start : start + size])


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """So many threads within, as many as before afterwards: the number changes the bits of a training."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
