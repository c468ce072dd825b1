"""What a network learns for each objective: its targets, its loss, what early stopping watches, and its answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.errors import ModelError
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.decoding_recipes import TrainingRecipe
from neuroledger.families.decoding.training.text_reading import Texts

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Classes", "Embeddings", "Labels", "Numbers", "learnt"]

Loss = Callable[[Any, Any], Any]


class Classes:
    """One class a window: cross-entropy, balanced accuracy."""

    def __init__(self, signature: Signature, recipe: TrainingRecipe, y: Array) -> None:
        self.signature, self.recipe = signature, recipe
        self.classes = np.unique(y)

    def targets(self, y: Array) -> Tensor:
        """(window,) numbers of the classes."""
        import torch

        unknown = np.setdiff1d(y, self.classes)
        if len(unknown):
            raise ModelError(f"class {unknown[0]!r} is watched but never trained")
        return torch.from_numpy(np.searchsorted(self.classes, y)).long()

    def grouped(self, y: Array) -> Tensor:
        """What a balanced sampler draws by."""
        return self.targets(y)

    def loss(self, targets: Tensor) -> Loss:
        """Cross-entropy, with the weights and smoothing of the recipe."""
        import torch
        from torch import nn

        weight = None
        if self.recipe.class_weights:
            counts = torch.bincount(targets, minlength=len(self.classes)).float()
            weight = counts.sum() / (len(self.classes) * counts)
        loss: Loss = nn.CrossEntropyLoss(weight=weight, label_smoothing=self.recipe.label_smoothing)
        return loss

    def kept(self, found: Tensor) -> Array:
        """(window, class) scores of a batch."""
        return _checked(found, self.signature.outputs)

    def goodness(self, kept: Array, targets: Tensor) -> float:
        """Balanced accuracy."""
        truth = targets.cpu().numpy()
        hit = kept.argmax(axis=1) == truth
        return float(np.mean([hit[truth == label].mean() for label in np.unique(truth)]))

    def answers(self, kept: Array) -> Array:
        """(window,) labels."""
        return np.asarray(self.classes[kept.argmax(axis=1)])

    def probabilities(self, kept: Array) -> Array:
        """(window, class)."""
        from scipy.special import softmax

        return np.asarray(softmax(kept, axis=1))


class Numbers:
    """Numbers, (window,) or (window, output): squared or absolute error; correlation or an error is watched."""

    def __init__(self, signature: Signature, recipe: TrainingRecipe, y: Array) -> None:
        self.signature, self.recipe = signature, recipe
        values = np.asarray(y, dtype=np.float32).reshape(len(y), -1)
        plain = recipe.target_scale == "none"
        self.mean: Any = 0.0 if plain else values.mean(axis=0)
        self.spread: Any = 1.0 if plain else np.maximum(values.std(axis=0), 1e-12)

    def targets(self, y: Array) -> Tensor:
        """(window, output), standardised by the training part."""
        import torch

        values = np.asarray(y, dtype=np.float32).reshape(len(y), -1)
        return torch.from_numpy(((values - self.mean) / self.spread).astype(np.float32))

    def grouped(self, y: Array) -> Tensor:
        """What a balanced sampler draws by: the numbers in their own units."""
        import torch

        return torch.from_numpy(np.asarray(y, dtype=float).reshape(len(y), -1))

    def loss(self, targets: Tensor) -> Loss:
        """The error of the recipe, times its weight."""
        from torch import nn

        error: Any = nn.L1Loss() if self.recipe.loss == "absolute" else nn.MSELoss()
        weight = self.recipe.loss_weight
        return error if weight == 1.0 else lambda found, wanted: weight * error(found.flatten(1), wanted)

    def kept(self, found: Tensor) -> Array:
        """(window, output) of a batch."""
        return _checked(found, self.signature.outputs)

    def goodness(self, kept: Array, targets: Tensor) -> float:
        """Mean correlation, or an error in the numbers' own units, turned round."""
        truth = targets.cpu().numpy()
        if self.recipe.monitor == "headline":
            return float(np.mean([_correlation(kept[:, k], truth[:, k]) for k in range(truth.shape[1])]))
        errors = np.abs((kept - truth) * self.spread).mean(axis=1)
        if self.recipe.monitor == "mae":
            return -float(errors.mean())
        edges = self.recipe.bins
        if len(edges) < 2:
            raise ModelError(
                "`monitor: binned_mae` needs `bins`, the edges between which errors are averaged"
            )
        numbers = (truth * self.spread + self.mean)[:, 0]
        # What was standardised in single precision comes back to its edge only nearly.
        near = 1e-5 * (edges[-1] - edges[0])
        which = np.digitize(numbers + near, edges[1:-1])
        which[(numbers < edges[0] - near) | (numbers > edges[-1] + near)] = -1
        means = [errors[which == k].mean() for k in range(len(edges) - 1) if (which == k).any()]
        return -float(np.mean(means)) if means else -np.inf

    def answers(self, kept: Array) -> Array:
        """(window,) or (window, output) in their own units."""
        found = kept * self.spread + self.mean
        return np.asarray(found[:, 0] if self.signature.outputs == 1 else found)

    def probabilities(self, kept: Array) -> Array:
        """Numbers have none."""
        raise ModelError("numbers have no probabilities")


def _rows(y: Array) -> Tensor:
    """(window, output) in single precision."""
    import torch

    return torch.from_numpy(np.asarray(y, dtype=np.float32).reshape(len(y), -1))


class Labels:
    """Several labels at once: binary cross-entropy, macro F1."""

    def __init__(self, signature: Signature, recipe: TrainingRecipe, y: Array) -> None:
        self.signature, self.recipe = signature, recipe

    def targets(self, y: Array) -> Tensor:
        """(window, label) zeros and ones."""
        return _rows(y)

    def grouped(self, y: Array) -> Tensor:
        """What a balanced sampler draws by: no one class."""
        return self.targets(y)

    def loss(self, targets: Tensor) -> Loss:
        """Each label weighted by how many windows lack it to one that has it; one that none has counts as it is."""
        import torch
        from torch import nn

        there = targets.sum(dim=0)
        weight = torch.where(there > 0, (len(targets) - there) / there.clamp(min=1.0), torch.ones_like(there))
        loss: Loss = nn.BCEWithLogitsLoss(pos_weight=weight if self.recipe.class_weights else None)
        return loss

    def kept(self, found: Tensor) -> Array:
        """(window, label) scores of a batch."""
        return _checked(found, self.signature.outputs)

    def goodness(self, kept: Array, targets: Tensor) -> float:
        """Macro F1 over all labels; one that is neither true nor predicted counts as zero, as published."""
        true, predicted = targets.cpu().numpy() > 0, kept > 0
        both, either = (true & predicted).sum(axis=0), true.sum(axis=0) + predicted.sum(axis=0)
        return float(np.mean(2 * both / np.maximum(either, 1)))

    def answers(self, kept: Array) -> Array:
        """(window, label) zeros and ones."""
        return (kept > 0).astype(int)

    def probabilities(self, kept: Array) -> Array:
        """(window, label)."""
        from scipy.special import expit

        return np.asarray(expit(kept))


class Embeddings:
    """An embedding among candidates: contrast within the batch, mean rank of the true one."""

    def __init__(self, signature: Signature, recipe: TrainingRecipe, y: Array) -> None:
        self.signature, self.recipe = signature, recipe

    def targets(self, y: Array) -> Tensor:
        """(window, dimension)."""
        return _rows(y)

    def grouped(self, y: Array) -> Tensor:
        """What a balanced sampler draws by: no one class."""
        return self.targets(y)

    def loss(self, targets: Tensor) -> Loss:
        """Cross-entropy of x·y/|y| within the batch, the true pair on the diagonal; neither temperature nor the way back."""
        import torch

        def contrast(found: Any, wanted: Any) -> Any:
            scores = found @ (wanted / wanted.norm(dim=1, keepdim=True).clamp(min=1e-12)).T
            return torch.nn.functional.cross_entropy(scores, torch.arange(len(found), device=found.device))

        return contrast

    def kept(self, found: Tensor) -> Array:
        """(window, dimension) of a batch."""
        return _checked(found, self.signature.outputs)

    def goodness(self, kept: Array, targets: Tensor) -> float:
        """One less the mean rank of the true embedding within batches, 0 the first and 1 the last; ties count half.

        A batch of one ranks nothing and is passed over.
        """
        wanted = targets.cpu().numpy()
        better = []
        for begin in range(0, len(kept), self.recipe.batch):
            x, y = kept[begin : begin + self.recipe.batch], wanted[begin : begin + self.recipe.batch]
            if len(x) == 1 and begin:
                continue
            scores = x @ (y / np.maximum(np.linalg.norm(y, axis=1, keepdims=True), 1e-12)).T
            true = np.diag(scores)[:, None]
            rank = ((scores > true).sum(axis=1) + (scores >= true).sum(axis=1) - 1) / 2
            better += (1 - rank / max(len(x) - 1, 1)).tolist()
        return float(np.mean(better))

    def answers(self, kept: Array) -> Array:
        """(window, dimension)."""
        return kept[:, 0] if self.signature.outputs == 1 else kept

    def probabilities(self, kept: Array) -> Array:
        """Embeddings have none."""
        raise ModelError("embeddings have no probabilities")


Learnt = Classes | Numbers | Labels | Embeddings | Texts


def learnt(signature: Signature, recipe: TrainingRecipe, y: Array) -> Learnt:
    """What is learnt from the training part `y`.

    Raises
    ------
    ModelError
        The recipe watches an error of numbers, and there are none.
    """
    objective = signature.objective
    if recipe.monitor in ("mae", "binned_mae") and objective != "regression":
        raise ModelError(
            f"`monitor: {recipe.monitor}` is an error of numbers, and {objective} is asked: take `headline`"
        )
    if objective == "classification":
        return Classes(signature, recipe, y)
    if objective == "regression":
        return Numbers(signature, recipe, y)
    if objective == "multilabel":
        return Labels(signature, recipe, y)
    return Texts(signature, recipe, y) if objective == "sequence" else Embeddings(signature, recipe, y)


def _checked(found: Tensor, outputs: int) -> Array:
    """(window, output) as plain numbers."""
    if not hasattr(found, "ndim"):
        raise ModelError(
            f"the network answers {type(found).__name__}; a tensor (window, {outputs}) is needed"
        )
    if found.ndim != 2 or found.shape[1] != outputs:
        raise ModelError(f"the network answers {tuple(found.shape)}; (window, {outputs}) is needed")
    return np.asarray(found.float().cpu().numpy())


def _correlation(predicted: Array, true: Array) -> float:
    """Pearson's r, or -1 for a constant, which is never the best."""
    return float(np.corrcoef(predicted, true)[0, 1]) if predicted.std() > 0 and true.std() > 0 else -1.0
