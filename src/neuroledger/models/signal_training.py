"""A torch network trained on windows of a signal by a recipe, with early stopping and one seed for everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from neuroledger.core.decoding.decoder import Signature
from neuroledger.errors import ModelError
from neuroledger.models.convolutional_decoders import limit_norms
from neuroledger.models.decoding_recipes import TrainingRecipe

__all__ = ["TrainedNetwork"]

Array = npt.NDArray[Any]


class TrainedNetwork:
    """An estimator around a network; after `fit`, `epochs_` and `parameters_` tell how it went.

    Without a validation part of its own, the recipe's share of the training windows is set apart, of each class alike.
    """

    def __init__(
        self,
        make: Callable[[Signature], Any],
        signature: Signature,
        recipe: TrainingRecipe,
        device: str = "cpu",
    ) -> None:
        self.make, self.signature, self.recipe, self.device = make, signature, recipe, device

    @property
    def threads(self) -> int:
        """Threads of the training; another number gives other bits."""
        return self.recipe.threads

    def fit(self, x: Array, y: Array) -> TrainedNetwork:
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
        return self.fit_watching(x[~watched], y[~watched], x[watched], y[watched])

    def fit_watching(self, x: Array, y: Array, watched_x: Array, watched_y: Array) -> TrainedNetwork:
        """Train on (window, channel, sample) `x`; keep the state that does best on the watched windows."""
        with _threads(self.recipe.threads):
            return self._train(x, y, watched_x, watched_y)

    def _train(self, x: Array, y: Array, watched_x: Array, watched_y: Array) -> TrainedNetwork:
        import torch

        recipe = self.recipe
        self._learn_scale(x)
        if self.signature.objective == "classification":
            self.classes_ = np.unique(y)
        targets, watched = self._targets(y), self._targets(watched_y)
        inputs, watched_inputs = self._inputs(x), self._inputs(watched_x)
        torch.manual_seed(self.signature.seed)
        network = self.make(self.signature).to(self.device)
        self.parameters_ = sum(parameter.numel() for parameter in network.parameters())
        loss = self._loss(targets)
        optimiser = torch.optim.AdamW(
            network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay
        )
        steps = -(-len(inputs) // recipe.batch)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser,
            max_lr=recipe.learning_rate,
            total_steps=recipe.epochs * steps,
            pct_start=recipe.warm_up,
        )
        order = torch.Generator().manual_seed(self.signature.seed)
        best, kept, waited = -np.inf, None, 0
        for epoch in range(recipe.epochs):
            network.train()
            for rows in torch.randperm(len(inputs), generator=order).split(recipe.batch):
                optimiser.zero_grad()
                value = loss(network(inputs[rows]), targets[rows])
                value.backward()
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
        return self

    def predict(self, x: Array) -> Array:
        """Labels, or numbers or embeddings in their own units."""
        found = self._outputs(self.network_, self._inputs(x))
        if self.signature.objective == "classification":
            return np.asarray(self.classes_[found.argmax(axis=1)])
        found = found * self.target_spread_ + self.target_mean_
        return found[:, 0] if self.signature.outputs == 1 else found

    def predict_proba(self, x: Array) -> Array:
        """Probabilities, (window, class) or (window, label)."""
        from scipy.special import expit, softmax

        found = self._outputs(self.network_, self._inputs(x))
        return np.asarray(
            softmax(found, axis=1) if self.signature.objective == "classification" else expit(found)
        )

    def _learn_scale(self, x: Array) -> None:
        if self.recipe.scale == "robust":
            low, middle, high = np.percentile(x, [25, 50, 75], axis=(0, 2))
            centre, spread = middle, high - low
        elif self.recipe.scale == "standard":
            centre, spread = x.mean(axis=(0, 2)), x.std(axis=(0, 2))
        else:
            centre, spread = np.zeros(x.shape[1]), np.ones(x.shape[1])
        self.centre_, self.spread_ = centre[:, None], np.where(spread > 0, spread, 1.0)[:, None]

    def _inputs(self, x: Array) -> Any:
        import torch

        scaled = np.clip((x - self.centre_) / self.spread_, -self.recipe.clamp, self.recipe.clamp)
        return torch.from_numpy(scaled.astype(np.float32)).to(self.device)

    def _targets(self, y: Array) -> Any:
        import torch

        objective = self.signature.objective
        if objective == "classification":
            unknown = np.setdiff1d(y, self.classes_)
            if len(unknown):
                raise ModelError(f"class {unknown[0]!r} is watched but never trained")
            return torch.from_numpy(np.searchsorted(self.classes_, y)).long().to(self.device)
        values = np.asarray(y, dtype=np.float32).reshape(len(y), -1)
        if not hasattr(self, "target_mean_"):
            plain = objective != "regression"
            self.target_mean_ = 0.0 if plain else values.mean(axis=0)
            self.target_spread_ = 1.0 if plain else np.maximum(values.std(axis=0), 1e-12)
        return torch.from_numpy(((values - self.target_mean_) / self.target_spread_).astype(np.float32)).to(
            self.device
        )

    def _loss(self, targets: Any) -> Any:
        import torch
        from torch import nn

        objective, recipe = self.signature.objective, self.recipe
        if objective == "classification":
            weight = None
            if recipe.class_weights:
                counts = torch.bincount(targets, minlength=len(self.classes_)).float()
                weight = counts.sum() / (len(self.classes_) * counts)
            return nn.CrossEntropyLoss(weight=weight, label_smoothing=recipe.label_smoothing)
        if objective == "multilabel":
            share = targets.mean(dim=0).clamp(1e-6, 1 - 1e-6)
            return nn.BCEWithLogitsLoss(pos_weight=(1 - share) / share if recipe.class_weights else None)
        if objective == "retrieval":
            return _contrast
        return nn.MSELoss()

    def _goodness(self, network: Any, inputs: Any, targets: Any, loss: Callable[[Any, Any], Any]) -> float:
        """What early stopping watches; higher is better."""
        import torch

        found = self._outputs(network, inputs)
        objective = self.signature.objective
        if self.recipe.monitor == "headline" and objective == "classification":
            truth = targets.cpu().numpy()
            hit = found.argmax(axis=1) == truth
            return float(np.mean([hit[truth == label].mean() for label in np.unique(truth)]))
        if self.recipe.monitor == "headline" and objective == "regression":
            truth = targets.cpu().numpy()
            return float(np.mean([_correlation(found[:, k], truth[:, k]) for k in range(truth.shape[1])]))
        with torch.no_grad():
            return -float(loss(torch.from_numpy(found).to(self.device), targets))

    def _outputs(self, network: Any, inputs: Any) -> Array:
        import torch

        network.eval()
        with torch.inference_mode(), _threads(self.recipe.threads):
            found = torch.cat([network(part) for part in inputs.split(max(1, self.recipe.batch))])
        if found.ndim != 2 or found.shape[1] != self.signature.outputs:
            raise ModelError(
                f"the network answers {tuple(found.shape)}; (window, {self.signature.outputs}) is needed"
            )
        return np.asarray(found.float().cpu().numpy())


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


def _correlation(said: Array, true: Array) -> float:
    """Pearson's r, or -1 for a constant, which is never the best."""
    return float(np.corrcoef(said, true)[0, 1]) if said.std() > 0 and true.std() > 0 else -1.0


def _contrast(found: Any, wanted: Any) -> Any:
    """Cross-entropy of x·y/|y| within the batch, the true pair on the diagonal."""
    import torch

    scores = found @ (wanted / wanted.norm(dim=1, keepdim=True).clamp(min=1e-12)).T
    return torch.nn.functional.cross_entropy(scores, torch.arange(len(found), device=found.device))
