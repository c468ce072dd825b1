"""Texts: edit distance, CTC training targets and loss, and greedy or beam-search decoding."""

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
            previous, row[j] = (
                row[j],
                min(row[j] + 1, row[j - 1] + 1, previous + (left != right)),
            )
    return row[-1]


# The logarithm that stands for a probability of zero.
LOWEST = -1e30


class Texts:
    """One text per window: CTC loss [graves2006]; the character error rate is monitored. The blank is the last symbol.

    The network returns (window, time, symbol), scores or log probabilities. `breadth` is the number of prefixes in the beam
    search; 1 takes the best symbol at each time.
    """

    def __init__(
        self, signature: Signature, recipe: TrainingRecipe, y: Array, breadth: int = 1
    ) -> None:
        if signature.symbols is None:
            raise ModelError("a decoder of texts needs the symbols of the texts")
        self.signature, self.recipe, self.breadth = signature, recipe, breadth
        self.symbols = signature.symbols
        self.blank = len(self.symbols)
        self.number = {symbol: k for k, symbol in enumerate(self.symbols)}

    def targets(self, y: Array) -> Tensor:
        """Numbers of symbols, (window, place), padded with blanks."""
        import torch

        texts = list(map(str, y))
        unknown = sorted(
            {symbol for text in texts for symbol in text} - set(self.number)
        )
        if unknown:
            raise ModelError(
                f"{unknown[0]!r} is in a text but not among the {self.blank} symbols of the decoder: add it to `symbols`, "
                "or exclude such windows"
            )
        numbers = torch.full(
            (len(texts), max(map(len, texts), default=0) or 1),
            self.blank,
            dtype=torch.long,
        )
        for row, text in enumerate(texts):
            numbers[row, : len(text)] = torch.tensor(
                [self.number[symbol] for symbol in text], dtype=torch.long
            )
        return numbers

    def sampling_targets(self, y: Array) -> Tensor:
        """The targets for a balanced sampler, which refuses them because they are not single classes."""
        return self.targets(y).float()

    def loss(self, targets: Tensor) -> Callable[[Any, Any], Any]:
        """CTC loss: the negative log probability of the text, per symbol."""
        from torch.nn import functional

        longest = max(
            (steps_needed(row[row != self.blank].tolist()) for row in targets.cpu()),
            default=0,
        )

        def ctc(outputs: Any, target: Any) -> Any:
            self._check(outputs)
            if outputs.shape[1] < longest:
                raise ModelError(
                    f"a text of the training part needs {longest} steps in time, but the network has {outputs.shape[1]}: "
                    "use longer windows, a higher sampling rate, or a network with a higher resolution in time"
                )
            scores = functional.log_softmax(outputs.float(), dim=2).transpose(0, 1)
            lengths = (target != self.blank).sum(dim=1)
            steps = lengths.new_full((len(target),), outputs.shape[1])
            return functional.ctc_loss(
                scores, target, steps, lengths, blank=self.blank, zero_infinity=True
            )

        return ctc

    def to_array(self, outputs: Tensor) -> Array:
        """Decoded texts of a batch, (window,)."""
        from torch.nn import functional

        self._check(outputs)
        scores = functional.log_softmax(outputs.float(), dim=2).cpu().numpy()
        if self.breadth == 1:
            decoded = [greedy(window, self.blank) for window in scores]
        else:
            decoded = [beam(window, self.blank, self.breadth) for window in scores]
        return np.array(
            ["".join(self.symbols[k] for k in numbers) for numbers in decoded],
            dtype=object,
        )

    def monitor_value(self, outputs: Array, targets: Tensor) -> float:
        """The negative character error rate."""
        truth = [
            "".join(self.symbols[k] for k in row[row != self.blank].tolist())
            for row in targets.cpu()
        ]
        edits = sum(
            edit_distance(true, predicted)
            for true, predicted in zip(truth, outputs, strict=True)
        )
        return -edits / max(1, sum(map(len, truth)))

    def answers(self, outputs: Array) -> Array:
        """Texts, (window,)."""
        return outputs.astype(str)

    def probabilities(self, outputs: Array) -> Array:
        """Not defined for texts."""
        raise ModelError("texts have no probabilities")

    def _check(self, outputs: Tensor) -> None:
        if outputs.ndim != 3 or outputs.shape[2] != self.blank + 1:
            raise ModelError(
                f"the network returns {tuple(outputs.shape)}; (window, time, {self.blank + 1}) is needed: scores of "
                f"{self.blank} symbols and of the blank after them"
            )


def steps_needed(numbers: list[int]) -> int:
    """The least number of steps in time for a text: one per symbol, and a blank between two equal ones.

    >>> steps_needed([3, 3, 1])
    4
    """
    return len(numbers) + sum(a == b for a, b in pairwise(numbers))


def greedy(scores: Array, blank: int) -> list[int]:
    """Decode scores (time, symbol) by the best symbol at each time; repetitions are merged and blanks removed.

    >>> greedy(np.eye(3)[[0, 0, 2, 0, 1, 1]], blank=2)
    [0, 0, 1]
    """
    best = scores.argmax(axis=1)
    changed = np.concatenate([[True], best[1:] != best[:-1]])
    return list(map(int, best[changed & (best != blank)]))


def beam(scores: Array, blank: int, breadth: int) -> list[int]:
    """Decode by prefix beam search: the most probable text among the best `breadth` prefixes at every time [graves2006].

    `scores` are log probabilities, (time, symbol). The probability of a prefix is the sum over all its alignments; those
    that end in a blank are counted separately, since a repeated symbol is a new one only after a blank.
    """
    beams: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, LOWEST)}
    for scores_now in scores.astype(float):
        candidates: dict[tuple[int, ...], list[float]] = defaultdict(
            lambda: [LOWEST, LOWEST]
        )
        likely = list(map(int, np.argsort(-scores_now, kind="stable")[: breadth + 1]))
        for text, (after_blank, after_symbol) in beams.items():
            either = _sum((after_blank, after_symbol))
            same = candidates[text]
            same[0] = _sum((same[0], either + scores_now[blank]))
            if text:
                same[1] = _sum((same[1], after_symbol + scores_now[text[-1]]))
            for symbol in likely:
                if symbol != blank:
                    before = after_blank if text and text[-1] == symbol else either
                    longer = candidates[(*text, symbol)]
                    longer[1] = _sum((longer[1], before + scores_now[symbol]))
        best = sorted(candidates, key=lambda text: -_sum(candidates[text]))[:breadth]
        beams = {text: (candidates[text][0], candidates[text][1]) for text in best}
    return list(next(iter(beams)))


def _sum(terms: Sequence[float]) -> float:
    """Logarithm of the sum of two probabilities, given as logarithms."""
    return float(np.logaddexp(terms[0], terms[1]))
