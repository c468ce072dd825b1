"""The steps of a training as a recipe has them: optimiser, schedule, and in which order windows are seen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from neuroledger.errors import ModelError
from neuroledger.families.decoding.training.decoding_recipes import TrainingRecipe

if TYPE_CHECKING:
    from torch import Generator, Tensor, nn

__all__ = ["batch_sizes", "batches_of", "optimiser_of", "rarity_of", "schedule_of"]


def optimiser_of(recipe: TrainingRecipe, network: nn.Module) -> Any:
    """AdamW with its decay, or Adam without, as published."""
    import torch

    if recipe.optimiser == "adam":
        return torch.optim.Adam(network.parameters(), lr=recipe.learning_rate)
    return torch.optim.AdamW(network.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)


def schedule_of(recipe: TrainingRecipe, optimiser: Any, steps: int) -> Any:
    """One cycle over the whole budget of epochs, so many steps each, or a constant rate."""
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
        raise ModelError(f"no training window lies within the bins {recipe.bins}")
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
