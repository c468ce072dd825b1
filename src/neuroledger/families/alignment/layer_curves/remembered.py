"""Scores of layers, remembered by what they follow from, so that only what changed since is computed again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from neuroledger.engine.plan import inputs_of
from neuroledger.engine.session import Session
from neuroledger.families.alignment.layer_curves.plain_score import (
    plain_score,
    plain_uncertainty,
    score_of,
    text_of,
    uncertainty_of,
)
from neuroledger.families.alignment.similarity.gram import rounding
from neuroledger.models.model import LayeredModel
from neuroledger.spec import registry
from neuroledger.spec.base import sha256_of
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.stats.score import Score
from neuroledger.stats.uncertainty import Uncertainty
from neuroledger.store.derived import Derived, derived_at, installed_sha256, key_of

__all__ = ["Memory", "memory_of"]

Name = tuple[str, ...]
"""What is remembered of a model on a benchmark, such as the score of a layer."""


@dataclass(frozen=True)
class Memory:
    """What is remembered of one model on one benchmark; without ``derived`` nothing.

    Attributes
    ----------
    key
        Hash of everything that the scores of the model's layers follow from.
    """

    derived: Derived | None
    key: str

    def scores(
        self, layers: Sequence[str], compute: Callable[[str], Score]
    ) -> dict[str, Score]:
        """Return the score of each layer, remembered or computed."""
        names = {layer: ("score", layer) for layer in layers}
        known = self.recall(names.values())
        scores: dict[str, Score] = {}
        new: dict[Name, object] = {}
        for layer, name in names.items():
            if name in known:
                scores[layer] = self.score(name, known[name], _later(compute, layer))
                continue
            score = compute(layer)
            scores[layer] = self.watched(name, score)
            if score.status == "scored":
                new[name] = plain_score(score)
        self.remember(new)
        return scores

    def score(
        self, name: Name, plain: Mapping[str, Any], again: Callable[[], Score]
    ) -> Score:
        """Return a remembered score; ``again`` computes it, if its uncertainty is not remembered."""
        return score_of(plain, _Varies(self, name, again, may_be_known=True))

    def watched(self, name: Name, score: Score) -> Score:
        """Return a computed score, whose uncertainty will be remembered once it is computed."""
        if self.derived is None:
            return score
        varies = _Varies(self, name, lambda: score, may_be_known=False)
        return score.replace(varies=varies)

    def recall(self, names: Iterable[Name]) -> dict[Name, Any]:
        """Return what is remembered of those names of which something is, undamaged."""
        if self.derived is None:
            return {}
        keys = {name: self._key_of(name) for name in names}
        found = self.derived.recall(keys.values())
        undamaged = {}
        for name, key in keys.items():
            match found.get(key):
                case [str(digest), str(text)] if digest == _sha256(key + text):
                    undamaged[name] = json.loads(text)
        return undamaged

    def remember(self, values: Mapping[Name, object]) -> None:
        """Keep values with their hashes, but those that contain other objects than plain data and arrays."""
        if self.derived is None:
            return
        rows = {}
        for name, value in values.items():
            with suppress(TypeError):
                text = text_of(value)
                key = self._key_of(name)
                rows[key] = [_sha256(key + text), text]
        self.derived.remember(rows)

    def _key_of(self, name: Name) -> str:
        return key_of("layer", self.key, *name)


@dataclass(frozen=True)
class _Varies:
    """How a score varies, by factors: remembered, or computed from the score."""

    memory: Memory
    name: Name
    again: Callable[[], Score]
    may_be_known: bool

    def __call__(self, factors: Sequence[str] | None) -> Uncertainty | None:
        """Return the uncertainty over the factors (default: all)."""
        name = ("uncertainty", *self.name, repr(factors))
        if self.may_be_known:
            known = self.memory.recall([name])
            if name in known:
                return uncertainty_of(known[name])
        found = self.again().uncertainty_over(factors)
        self.memory.remember({name: plain_uncertainty(found)})
        return found


def memory_of(
    session: Session, benchmark: BenchmarkSpec, model: LayeredModel
) -> Memory:
    """Return what is remembered of a model on a benchmark.

    Nothing is of a model in memory, whose code has no identity, with components of other packages, whose code may change
    without a new version, or in a session without a store.
    """
    identity = model.identity
    if identity is None or callable(identity) or session.store is None:
        return Memory(None, "")
    if not registry.only_shipped():
        return Memory(None, "")
    inputs = inputs_of(session.catalog, benchmark, None, session.request)
    key = sha256_of(
        [
            inputs.sha256,
            dict(identity),
            [model.id, model.visual_degrees, model.times, model.stochastic],
            model.batch,
            rounding(session.workspace),
            installed_sha256(),
        ]
    )
    return Memory(derived_at(session.catalog.root), key)


def _later(compute: Callable[[str], Score], layer: str) -> Callable[[], Score]:
    return lambda: compute(layer)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
