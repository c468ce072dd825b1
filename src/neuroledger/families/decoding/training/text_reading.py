"""How far two texts are apart, in edits: what error rates of words and characters count."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from neuroledger.data.arrays import Array
from neuroledger.errors import ModelError
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.decoding_recipes import TrainingRecipe

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Texts", "beam", "edit_distance", "greedy", "steps_needed"]


def edit_distance(true: Sequence[str], predicted: Sequence[str]) -> int:
    """Levenshtein distance between two sequences: fewest substitutions, insertions and deletions.

    >>> edit_distance("kitten", "sitting")
    3
    """
    row = list(range(len(predicted) + 1))
    for i, left in enumerate(true, 1):
        previous, row[0] = row[0], i
        for j, right in enumerate(predicted, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (left != right))
    return row[-1]


# What a probability counts at least, as a logarithm.
LOWEST = -1e30


class Texts:
    """A text a window: CTC loss [graves2006], character error rate; the blank is the symbol after the last.

    The network answers (window, time, symbol), scores or logarithms of probabilities. `breadth` is how many beginnings of
    the text are followed while it is read; 1 takes the best symbol at each time.
    """

    def __init__(self, signature: Signature, recipe: TrainingRecipe, y: Array, breadth: int = 1) -> None:
        if signature.symbols is None:
            raise ModelError("texts need the symbols that they are made of")
        self.signature, self.recipe, self.breadth = signature, recipe, breadth
        self.symbols = signature.symbols
        self.blank = len(self.symbols)
        self.number = {symbol: k for k, symbol in enumerate(self.symbols)}

    def targets(self, y: Array) -> Tensor:
        """(window, place) numbers of symbols, the blank after the end of each text."""
        import torch

        texts = [str(text) for text in y]
        unknown = sorted({symbol for text in texts for symbol in text} - set(self.number))
        if unknown:
            raise ModelError(
                f"{unknown[0]!r} is in a text and not among the {self.blank} symbols of the decoder: add it to `symbols`, "
                "or leave such windows out"
            )
        numbers = torch.full((len(texts), max(map(len, texts), default=0) or 1), self.blank, dtype=torch.long)
        for row, text in enumerate(texts):
            numbers[row, : len(text)] = torch.tensor(
                [self.number[symbol] for symbol in text], dtype=torch.long
            )
        return numbers

    def grouped(self, y: Array) -> Tensor:
        """What a balanced sampler draws by: no one class."""
        return self.targets(y).float()

    def loss(self, targets: Tensor) -> Callable[[Any, Any], Any]:
        """Minus the logarithm of the probability of all ways to write the text, per symbol."""
        from torch.nn import functional

        longest = max((steps_needed(row[row != self.blank].tolist()) for row in targets.cpu()), default=0)

        def ctc(found: Any, wanted: Any) -> Any:
            self._check(found)
            if found.shape[1] < longest:
                raise ModelError(
                    f"a text of the training part needs {longest} steps in time and the network gives {found.shape[1]}: "
                    "take longer windows, a higher sampling rate, or a network that keeps more of them"
                )
            scores = functional.log_softmax(found.float(), dim=2).transpose(0, 1)
            lengths = (wanted != self.blank).sum(dim=1)
            steps = lengths.new_full((len(wanted),), found.shape[1])
            return functional.ctc_loss(scores, wanted, steps, lengths, blank=self.blank, zero_infinity=True)

        return ctc

    def kept(self, found: Tensor) -> Array:
        """(window,) texts of a batch."""
        from torch.nn import functional

        self._check(found)
        scores = functional.log_softmax(found.float(), dim=2).cpu().numpy()
        read = greedy if self.breadth == 1 else lambda one, blank: beam(one, blank, self.breadth)
        return np.array(
            ["".join(self.symbols[k] for k in read(one, self.blank)) for one in scores], dtype=object
        )

    def goodness(self, kept: Array, targets: Tensor) -> float:
        """Minus the character error rate."""
        truth = ["".join(self.symbols[k] for k in row[row != self.blank].tolist()) for row in targets.cpu()]
        edits = sum(edit_distance(true, predicted) for true, predicted in zip(truth, kept, strict=True))
        return -edits / max(1, sum(map(len, truth)))

    def answers(self, kept: Array) -> Array:
        """(window,) texts."""
        return kept.astype(str)

    def probabilities(self, kept: Array) -> Array:
        """Texts have none."""
        raise ModelError("texts have no probabilities")

    def _check(self, found: Tensor) -> None:
        if found.ndim != 3 or found.shape[2] != self.blank + 1:
            raise ModelError(
                f"the network answers {tuple(found.shape)}; (window, time, {self.blank + 1}) is needed: scores of "
                f"{self.blank} symbols and of the blank after them"
            )


def steps_needed(numbers: list[int]) -> int:
    """How many steps in time a text takes at least: one a symbol, and a blank between two that are alike.

    >>> steps_needed([3, 3, 1])
    4
    """
    return len(numbers) + sum(a == b for a, b in pairwise(numbers))


def greedy(scores: Array, blank: int) -> list[int]:
    """The best symbol at each time, (time, symbol); what repeats is one, blanks are none.

    >>> greedy(np.eye(3)[[0, 0, 2, 0, 1, 1]], blank=2)
    [0, 0, 1]
    """
    best = scores.argmax(axis=1)
    changed = np.concatenate([[True], best[1:] != best[:-1]])
    return [int(k) for k in best[changed & (best != blank)]]


def beam(scores: Array, blank: int, breadth: int) -> list[int]:
    """The most probable text among those whose beginnings are among the best `breadth` at every time [graves2006].

    `scores` are logarithms of probabilities, (time, symbol). A beginning's probability is the sum over all ways to write it,
    kept apart by whether they end in a blank, since only after one is a repeated symbol another one.
    """
    held: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, LOWEST)}
    for now in scores.astype(float):
        grown: dict[tuple[int, ...], list[float]] = defaultdict(lambda: [LOWEST, LOWEST])
        likely = [int(k) for k in np.argsort(-now, kind="stable")[: breadth + 1]]
        for text, (after_blank, after_symbol) in held.items():
            whole = _sum((after_blank, after_symbol))
            same = grown[text]
            same[0] = _sum((same[0], whole + now[blank]))
            if text:
                same[1] = _sum((same[1], after_symbol + now[text[-1]]))
            for symbol in likely:
                if symbol != blank:
                    before = after_blank if text and text[-1] == symbol else whole
                    longer = grown[(*text, symbol)]
                    longer[1] = _sum((longer[1], before + now[symbol]))
        best = sorted(grown, key=lambda text: -_sum(grown[text]))[:breadth]
        held = {text: (grown[text][0], grown[text][1]) for text in best}
    return list(next(iter(held)))


def _sum(ways: Sequence[float]) -> float:
    """Logarithm of the sum of two probabilities."""
    return float(np.logaddexp(ways[0], ways[1]))
