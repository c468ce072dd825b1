"""Training objectives: targets, loss, the value that early stopping monitors, and predictions of a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from neuroledger.data.arrays import Array, floats
from neuroledger.errors import ModelError
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.decoding_recipes import TrainingRecipe
from neuroledger.families.decoding.training.text_reading import Texts

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Classes", "Embeddings", "Labels", "Numbers", "objective_for"]

Loss = Callable[[Any, Any], Any]
FIRST_FEW = 5
"""How many candidates `batch_top5` counts as found."""


class Classes:
    """One class per window: cross-entropy as loss; balanced accuracy is monitored."""

    def __init__(self, signature: Signature, recipe: TrainingRecipe, y: Array) -> None:
        self.signature, self.recipe = signature, recipe
        self.classes = np.unique(y)

    def targets(self, y: Array) -> Tensor:
        """Class numbers, (window,)."""
        import torch

        unknown = np.setdiff1d(y, self.classes)
        if len(unknown):
            raise ModelError(
                f"class {unknown[0]!r} is in the validation part but not in the training part"
            )
        return torch.from_numpy(np.searchsorted(self.classes, y)).long()

    def sampling_targets(self, y: Array) -> Tensor:
        """The targets that a balanced sampler uses."""
        return self.targets(y)

    def loss(self, targets: Tensor) -> Loss:
        """Cross-entropy with the class weights and label smoothing of the recipe."""
        import torch
        from torch import nn

        weight = None
        if self.recipe.class_weights:
            counts = torch.bincount(targets, minlength=len(self.classes)).float()
            weight = counts.sum() / (len(self.classes) * counts)
        loss: Loss = nn.CrossEntropyLoss(
            weight=weight, label_smoothing=self.recipe.label_smoothing
        )
        return loss

    def to_array(self, outputs: Tensor) -> Array:
        """Scores of a batch, (window, class)."""
        return _require_matrix(outputs, self.signature.outputs)

    def monitor_value(self, outputs: Array, targets: Tensor) -> float:
        """Balanced accuracy."""
        truth = targets.cpu().numpy()
        hit = outputs.argmax(axis=1) == truth
        return float(
            np.mean([hit[truth == label].mean() for label in np.unique(truth)])
        )

    def answers(self, outputs: Array) -> Array:
        """(window,) labels."""
        return np.asarray(self.classes[outputs.argmax(axis=1)])

    def probabilities(self, outputs: Array) -> Array:
        """(window, class)."""
        from scipy.special import softmax

        return np.asarray(softmax(outputs, axis=1))


class Numbers:
    """Numbers, (window,) or (window, output): squared or absolute error; correlation or an error is monitored."""

    def __init__(self, signature: Signature, recipe: TrainingRecipe, y: Array) -> None:
        self.signature, self.recipe = signature, recipe
        values = np.asarray(y, dtype=np.float32).reshape(len(y), -1)
        plain = recipe.target_scale == "none"
        self.mean: Any = 0.0 if plain else values.mean(axis=0)
        self.spread: Any = 1.0 if plain else np.maximum(values.std(axis=0), 1e-12)

    def targets(self, y: Array) -> Tensor:
        """Targets standardised by the training part, (window, output)."""
        import torch

        values = np.asarray(y, dtype=np.float32).reshape(len(y), -1)
        return torch.from_numpy(((values - self.mean) / self.spread).astype(np.float32))

    def sampling_targets(self, y: Array) -> Tensor:
        """The targets that a balanced sampler uses: the numbers in their own units."""
        import torch

        return torch.from_numpy(floats(y).reshape(len(y), -1))

    def loss(self, targets: Tensor) -> Loss:
        """The error of the recipe, multiplied by its weight."""
        from torch import nn

        error: Loss = nn.L1Loss() if self.recipe.loss == "absolute" else nn.MSELoss()
        weight = self.recipe.loss_weight
        if weight == 1.0:
            return error
        return lambda predicted, target: weight * error(predicted.flatten(1), target)

    def to_array(self, outputs: Tensor) -> Array:
        """(window, output) of a batch."""
        return _require_matrix(outputs, self.signature.outputs)

    def monitor_value(self, outputs: Array, targets: Tensor) -> float:
        """Mean correlation, or the negative error in the numbers' own units."""
        truth = targets.cpu().numpy()
        if self.recipe.monitor == "headline":
            return float(
                np.mean(
                    [
                        _correlation(outputs[:, k], truth[:, k])
                        for k in range(truth.shape[1])
                    ]
                )
            )
        errors = np.abs((outputs - truth) * self.spread).mean(axis=1)
        if self.recipe.monitor == "mae":
            return -float(errors.mean())
        edges = self.recipe.bins
        if len(edges) < 2:
            raise ModelError(
                "`monitor: binned_mae` needs `bins`, the edges of the bins in which errors are averaged"
            )
        numbers = (truth * self.spread + self.mean)[:, 0]
        # Numbers at an edge may be off after standardisation in single precision.
        near = 1e-5 * (edges[-1] - edges[0])
        bin_of = np.digitize(numbers + near, edges[1:-1])
        below = numbers < edges[0] - near
        above = numbers > edges[-1] + near
        bin_of[below | above] = -1
        means = [
            errors[bin_of == k].mean()
            for k in range(len(edges) - 1)
            if (bin_of == k).any()
        ]
        if means:
            return -float(np.mean(means))
        return -np.inf

    def answers(self, outputs: Array) -> Array:
        """Predictions in their own units, (window,) or (window, output)."""
        values = outputs * self.spread + self.mean
        if self.signature.outputs == 1:
            values = values[:, 0]
        return np.asarray(values)

    def probabilities(self, outputs: Array) -> Array:
        """Not defined for numbers."""
        raise ModelError("numbers have no probabilities")


def _rows(y: Array) -> Tensor:
    """(window, output) in single precision."""
    import torch

    return torch.from_numpy(np.asarray(y, dtype=np.float32).reshape(len(y), -1))


class Labels:
    """Several labels at once: binary cross-entropy as loss; macro F1 is monitored."""

    def __init__(self, signature: Signature, recipe: TrainingRecipe, y: Array) -> None:
        self.signature, self.recipe = signature, recipe

    def targets(self, y: Array) -> Tensor:
        """(window, label) zeros and ones."""
        return _rows(y)

    def sampling_targets(self, y: Array) -> Tensor:
        """The targets for a balanced sampler, which refuses them because they are not single classes."""
        return self.targets(y)

    def loss(self, targets: Tensor) -> Loss:
        """Binary cross-entropy; each label is weighted by the ratio of windows without and with it, or 1 if none has it."""
        import torch
        from torch import nn

        positives = targets.sum(dim=0)
        ratio = (len(targets) - positives) / positives.clamp(min=1.0)
        weight = torch.where(positives > 0, ratio, torch.ones_like(positives))
        loss: Loss = nn.BCEWithLogitsLoss(
            pos_weight=weight if self.recipe.class_weights else None
        )
        return loss

    def to_array(self, outputs: Tensor) -> Array:
        """(window, label) scores of a batch."""
        return _require_matrix(outputs, self.signature.outputs)

    def monitor_value(self, outputs: Array, targets: Tensor) -> float:
        """Macro F1 over all labels; a label that is neither true nor predicted counts as zero, as published."""
        true = targets.cpu().numpy() > 0
        predicted = outputs > 0
        both = (true & predicted).sum(axis=0)
        either = true.sum(axis=0) + predicted.sum(axis=0)
        return float(np.mean(2 * both / np.maximum(either, 1)))

    def answers(self, outputs: Array) -> Array:
        """(window, label) zeros and ones."""
        return (outputs > 0).astype(int)

    def probabilities(self, outputs: Array) -> Array:
        """(window, label)."""
        from scipy.special import expit

        return np.asarray(expit(outputs))


class Embeddings:
    """An embedding among candidates: contrastive loss within the batch.

    The mean rank of the true one within batches is monitored, or how often it is among the first five.
    """

    def __init__(self, signature: Signature, recipe: TrainingRecipe, y: Array) -> None:
        self.signature, self.recipe = signature, recipe

    def targets(self, y: Array) -> Tensor:
        """(window, dimension)."""
        return _rows(y)

    def sampling_targets(self, y: Array) -> Tensor:
        """The targets for a balanced sampler, which refuses them because they are not single classes."""
        return self.targets(y)

    def loss(self, targets: Tensor) -> Loss:
        """Cross-entropy of x·y/|y| within the batch, from predictions to targets only, without temperature."""
        import torch

        def contrast(predicted: Any, target: Any) -> Any:
            scores = (
                predicted
                @ (target / target.norm(dim=1, keepdim=True).clamp(min=1e-12)).T
            )
            return torch.nn.functional.cross_entropy(
                scores, torch.arange(len(predicted), device=predicted.device)
            )

        return contrast

    def to_array(self, outputs: Tensor) -> Array:
        """(window, dimension) of a batch."""
        return _require_matrix(outputs, self.signature.outputs)

    def monitor_value(self, outputs: Array, targets: Tensor) -> float:
        """The mean over windows of what the recipe monitors within batches; a last batch of one window is ignored.

        `headline`: one minus the rank of the true embedding, from 0 (last) to 1 (first); ties count half.
        `batch_top5`: whether the true embedding is among the first five, as NeuralBench monitors it.
        """
        embeddings = targets.cpu().numpy()
        batch = self.recipe.batch
        found = []
        for start in range(0, len(outputs), batch):
            x = outputs[start : start + batch]
            y = embeddings[start : start + batch]
            if len(x) == 1 and start:
                continue
            rank = _ranks_within(x, y)
            if self.recipe.monitor == "batch_top5":
                found += (rank < FIRST_FEW).tolist()
            else:
                found += (1 - rank / max(len(x) - 1, 1)).tolist()
        return float(np.mean(found))

    def answers(self, outputs: Array) -> Array:
        """(window, dimension)."""
        if self.signature.outputs == 1:
            return outputs[:, 0]
        return outputs

    def probabilities(self, outputs: Array) -> Array:
        """Not defined for embeddings."""
        raise ModelError("embeddings have no probabilities")


def _ranks_within(predicted: Array, true: Array) -> Array:
    """The rank of each true embedding among those of the batch, (window,), by x·y/|y|; 0 is first, ties count half."""
    length = np.linalg.norm(true, axis=1, keepdims=True)
    scores = predicted @ (true / np.maximum(length, 1e-12)).T
    own = np.diag(scores)[:, None]
    above = (scores > own).sum(axis=1)
    at_least = (scores >= own).sum(axis=1)
    return np.asarray((above + at_least - 1) / 2)


TrainingObjective = Classes | Numbers | Labels | Embeddings | Texts


def objective_for(
    signature: Signature, recipe: TrainingRecipe, y: Array
) -> TrainingObjective:
    """The training objective for the targets `y` of the training part.

    Raises
    ------
    ModelError
        The recipe monitors an error of numbers, but the targets are not numbers, or retrieval, but they are no embeddings.
    """
    objective = signature.objective
    if recipe.monitor == "batch_top5" and objective != "retrieval":
        raise ModelError(
            f"`monitor: batch_top5` is a share of retrieved embeddings, but the objective is {objective}: use `headline`"
        )
    if recipe.monitor in ("mae", "binned_mae") and objective != "regression":
        raise ModelError(
            f"`monitor: {recipe.monitor}` is an error of numbers, but the objective is {objective}: use `headline`"
        )
    if objective == "classification":
        return Classes(signature, recipe, y)
    if objective == "regression":
        return Numbers(signature, recipe, y)
    if objective == "multilabel":
        return Labels(signature, recipe, y)
    if objective == "sequence":
        return Texts(signature, recipe, y)
    return Embeddings(signature, recipe, y)


def _require_matrix(tensor: Tensor, outputs: int) -> Array:
    """A tensor (window, output) as an array in single precision."""
    if not hasattr(tensor, "ndim"):
        raise ModelError(
            f"the network returns {type(tensor).__name__}; a tensor (window, {outputs}) is needed"
        )
    if tensor.ndim != 2 or tensor.shape[1] != outputs:
        raise ModelError(
            f"the network returns {tuple(tensor.shape)}; (window, {outputs}) is needed"
        )
    return np.asarray(tensor.float().cpu().numpy())


def _correlation(predicted: Array, true: Array) -> float:
    """Pearson's r; -1 for a constant, so that it is never the best."""
    if predicted.std() > 0 and true.std() > 0:
        return float(np.corrcoef(predicted, true)[0, 1])
    return -1.0
