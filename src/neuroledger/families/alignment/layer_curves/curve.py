"""The layer curve: how well each layer of a network accounts for a region, beside its untrained twin and the ceiling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pandas as pd

from neuroledger.data.pin.yaml_edit import inline
from neuroledger.engine.resolve import model_of, untrained_of
from neuroledger.engine.session import Request, Session
from neuroledger.errors import ModelError, RequestError
from neuroledger.families.alignment.figures import layers as draw
from neuroledger.families.alignment.layer_curves.assumed_preprocessing import (
    assumed_preprocessing,
)
from neuroledger.families.alignment.layer_curves.choice import (
    Choice,
    choose,
    layers_by_depth,
    region_of,
    score_layers,
)
from neuroledger.families.alignment.layer_curves.untrained import in_place, untrained
from neuroledger.models import api
from neuroledger.models.activation_store import open_store
from neuroledger.models.model import LayeredModel, Model
from neuroledger.models.torch_layers import OUTPUT, TorchExtract, in_memory
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.kinds import BenchmarkSpec
from neuroledger.stats.score import Score

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from torch.nn import Module

    # The id of a model, a model in memory, or a torch module.
    Subject: TypeAlias = str | Model | Module

__all__ = ["Layers", "curve", "layers"]

FORMAT: Final = 1
"""Version of the plain form of a curve."""
COLUMNS: Final = (
    "layer",
    "depth",
    "score",
    "low",
    "high",
    "untrained",
    "untrained_low",
    "untrained_high",
    "ceiling",
    "chosen",
)


@dataclass(frozen=True, repr=False)
class Layers(Mapping[str, Score]):
    """Scores of the layers of one model on one benchmark, in the order in which the layers finish; a mapping of them.

    Attributes
    ----------
    model, benchmark, region
        Ids, and the region as which each layer was scored.
    scores
        Layer → score on all stimuli.
    depths
        Layer → relative depth from 0 to 1 (``stages.depths``).
    untrained
        Layer → score of the same layer of the untrained twin; empty if there is no twin.
    choice
        The layer that one half of the stimuli chose, and its score on the other half.
    committed
        The layer that the model commits to the region, or None.
    notes
        What was assumed or left out.
    seed
        Seed of the halves, of the twin and of the benchmark.
    """

    model: str
    benchmark: str
    region: str
    scores: Mapping[str, Score]
    depths: Mapping[str, float]
    choice: Choice
    untrained: Mapping[str, Score] = field(default_factory=dict)
    committed: str | None = None
    notes: tuple[str, ...] = ()
    seed: int = 0

    def __getitem__(self, layer: str) -> Score:
        return self.scores[layer]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def best(self) -> str:
        """The layer with the best score on the stimuli that chose; its own score is :attr:`nested`."""
        return self.choice.layer

    @property
    def nested(self) -> Score | None:
        """The score of :attr:`best` on the stimuli that did not choose; None if there is none (``choice.reason``)."""
        return self.choice.nested

    @property
    def commitment(self) -> str:
        """The commitment to :attr:`best`, as a line of a model's spec."""
        return f"regions: {inline({self.region: self.best})}"

    @property
    def ceiling(self) -> dict[str, float | None] | None:
        """The ceiling with its interval on the scale of the scores, where it is 1; None for scores without a ceiling."""
        ceiling = next(iter(self.scores.values())).ceiling
        if ceiling is None:
            return None
        ends = (
            _finite(ceiling.low / ceiling.value),
            _finite(ceiling.high / ceiling.value),
        )
        return {"value": 1.0, "low": ends[0], "high": ends[1]}

    def to_frame(self) -> pd.DataFrame:
        """Return one row per layer: depth, score, interval, that of the untrained twin, ceiling, and whether it was chosen.

        The score is normalised as the benchmark declares; ``ceiling`` is the ceiling before normalisation.
        """
        rows = []
        for layer, score in self.scores.items():
            twin = self.untrained.get(layer)
            below = (
                (math.nan,) * 3 if twin is None else (twin.value, twin.low, twin.high)
            )
            ceiling = math.nan if score.ceiling is None else score.ceiling.value
            own = (score.value, score.low, score.high)
            rows.append(
                (layer, self.depths[layer], *own, *below, ceiling, layer == self.best)
            )
        return pd.DataFrame(rows, columns=list(COLUMNS))

    def to_dict(self) -> dict[str, Any]:
        """Return the curve as plain data, from which :func:`neuroledger.report.drawings.layer_curve` draws it."""
        first = next(iter(self.scores.values()))
        stages = [
            {
                "layer": layer,
                "depth": round(self.depths[layer], 6),
                **_plain(score),
                "untrained": _plain(self.untrained[layer])
                if layer in self.untrained
                else None,
            }
            for layer, score in self.scores.items()
        ]
        return {
            "format": FORMAT,
            "model": self.model,
            "benchmark": self.benchmark,
            "region": self.region,
            "scale": first.scale,
            "direction": first.direction,
            "covers": first.interval_covers,
            "layers": stages,
            "ceiling": self.ceiling,
            "chosen": self.best,
            "committed": self.committed,
            "nested": None if self.nested is None else _plain(self.nested),
            "choice": {
                "chosen_on": self.choice.chosen_on,
                "scored_on": self.choice.scored_on,
                "seed": self.seed,
                "reason": self.choice.reason,
            },
            "commitment": self.commitment,
            "notes": list(self.notes),
        }

    def said(self) -> list[str]:
        """Return the lines below the table: the choice, its score on other stimuli, the commitment, and the notes."""
        choice = self.choice
        if choice.nested is None:
            chosen = f"best on all stimuli, which is optimistic: {self.best} (no nested score: {choice.reason})"
        else:
            chosen = (
                f"{self.best} was chosen on {choice.chosen_on} stimuli; on the {choice.scored_on} others, which had no part "
                f"in the choice, it scores {_in_words(choice.nested)}"
            )
        return [chosen, self.commitment, *self.notes]

    def __str__(self) -> str:
        table = self.to_frame()
        for name in ("score", "untrained"):
            prefix = "" if name == "score" else "untrained_"
            ends = zip(
                table[name], table[f"{prefix}low"], table[f"{prefix}high"], strict=True
            )
            table[name] = [_range(value, low, high) for value, low, high in ends]
        table["chosen"] = ["<" if chosen else "" for chosen in table["chosen"]]
        shown = table[["layer", "depth", "score", "untrained", "chosen"]].rename(
            columns={"chosen": ""}
        )
        if not self.untrained:
            shown = shown.drop(columns="untrained")
        text = shown.to_string(index=False, float_format=lambda value: f"{value:.2f}")
        return "\n".join(
            [f"{self.model} on {self.benchmark}, {self._unit()}", text, *self.said()]
        )

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        def number(value: float) -> str:
            return f"{value:.3g}"

        table = self.to_frame().to_html(
            index=False, float_format=number, na_rep="–", border=0, escape=True
        )
        lines = "".join(f"<p>{escape(line)}</p>" for line in self.said())
        head = f"<p><b>{escape(self.model)}</b> on {escape(self.benchmark)}, {escape(self._unit())}</p>"
        return f"{head}{table}{lines}"

    def plot(self, *, ax: Axes | None = None) -> Axes:
        """Draw the curve; see :func:`neuroledger.plot.layers`."""
        return draw(self, ax=ax)

    def _unit(self) -> str:
        first = next(iter(self.scores.values()))
        scale = (first.unit or first.scale).replace("_", " ")
        after = " after the ceiling" if first.ceiling is not None else ""
        return f"{scale}{after}, with 95 % intervals"


def layers(
    model: Subject,
    benchmark: str,
    *,
    layers: Sequence[str] | str = (),
    untrained: bool | Subject = True,
    seed: int = 0,
    limit: int | None = None,
    device: str = "cpu",
    **declared: Any,
) -> Layers:
    """Return the benchmark's score for each layer of a model, used as the region; nothing is recorded.

    All layers are recorded in one pass over the stimuli for each network. Beside the curve, which scores every layer on
    all stimuli, the layer is *chosen* on one half of the stimuli and scored on the other half
    (``choose``): the highest point of a curve is biased upwards, this score is not.

    Parameters
    ----------
    model
        The id of a model, a model in memory, or a torch module as it is (on any device, in any mode; both are restored).
    benchmark
        The id of a benchmark that asks for the responses of a region.
    layers
        Names of layers, or ``"all"`` for every module that runs. By default the layers that the model declares; for a
        module or model that declares none, its stages: the outputs of the blocks at the coarsest level of the module
        tree that gives at least 5, of which at most 20 are taken (``stages``).
    untrained
        The twin: True for the untrained model that a spec names as ``untrained``, the model of a spec built without its
        weights, or a copy of a module with newly drawn weights (``untrained``); False for
        none; or an id, model or module with the same layers.
    seed, limit, device
        Of the request; ``seed`` also draws the halves and the twin.
    declared
        Arguments of :func:`neuroledger.models.torch` for a torch module. Without ``preprocessing`` that of the module's
        own configuration is used, or the usual one for photographs; the notes of the result say which.

    Raises
    ------
    NeuroLedgerError
        The model cannot be scored; the message states the reason.

    Examples
    --------
    >>> import torch
    >>> import neuroledger as nl
    >>> _ = torch.manual_seed(0)
    >>> network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 7, stride=8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2))
    >>> curve = nl.layers(network, "Kriegeskorte2008.monkeyIT-rdm", untrained=False, preprocessing={"resize": 32})
    >>> list(curve)
    ['1']
    >>> curve.commitment
    'regions: {IT: "1"}'
    """
    catalog = open_catalog()
    session = Session(
        catalog,
        Request(seed=seed, limit=limit, device=device),
        open_store(catalog.root),
    )
    return curve(
        session,
        catalog.benchmark(benchmark),
        model,
        layers,
        untrained=untrained,
        **declared,
    )


def curve(
    session: Session,
    benchmark: BenchmarkSpec,
    model: Subject,
    layers: Sequence[str] | str = (),
    *,
    untrained: bool | Subject = True,
    **declared: Any,
) -> Layers:
    """Return the layer curve of a model within a session; see :func:`layers`."""
    region = region_of(benchmark)
    if isinstance(model, str):
        session.catalog.model(model)
    subject, notes = _layered(session, model, declared)
    module = (
        subject.extract.module if isinstance(subject.extract, TorchExtract) else None
    )
    with in_place(module) if module is not None else nullcontext():
        depths = layers_by_depth(session, benchmark, subject, layers)
        scores = score_layers(session, benchmark, subject, list(depths))
        choice = choose(session, benchmark, subject, scores)
        twin, twin_notes = _twin(session, model, subject, untrained, declared)
        below = (
            {} if twin is None else score_layers(session, benchmark, twin, list(depths))
        )
    committed = subject.regions.get(region)
    return Layers(
        subject.id,
        benchmark.id,
        region,
        scores,
        depths,
        choice,
        below,
        committed=committed if isinstance(committed, str) else None,
        notes=(*notes, *twin_notes),
        seed=session.request.seed,
    )


def _layered(
    session: Session, model: Subject, declared: Mapping[str, Any]
) -> tuple[LayeredModel, tuple[str, ...]]:
    """Return a model with layers, and notes on what was assumed about it."""
    notes: tuple[str, ...] = ()
    if _is_module(model):
        fields = {
            "id": type(model).__name__.lower(),
            "device": session.request.device,
            **declared,
        }
        if fields.get("preprocessing") is None:
            fields["preprocessing"], words = assumed_preprocessing(model)
            notes = (words,)
        if not {"regions", "readout", "logits", "layers"} & set(fields):
            fields["layers"] = (OUTPUT,)
        built: Any = api.torch(model, **fields)
    elif isinstance(model, str):
        if declared:
            raise RequestError(
                f"{', '.join(sorted(declared))}: only a torch module takes declarations"
            )
        built = model_of(session, model)
    else:
        built = api.wrapped(model, **declared)
    if not isinstance(built, LayeredModel):
        raise ModelError(f"model {built.id!r} has no layers to compare")
    return built, notes


def _is_module(model: object) -> bool:
    return hasattr(model, "named_modules") and hasattr(model, "state_dict")


def _twin(
    session: Session,
    model: Subject,
    subject: LayeredModel,
    asked: bool | Subject,
    declared: Mapping[str, Any],
) -> tuple[LayeredModel | None, tuple[str, ...]]:
    """Return the untrained twin of a model, or None, with notes on how its weights were drawn or why there is none."""
    if asked is False:
        return None, ()
    if asked is not True:
        fields: dict[str, Any] = {}
        if _is_module(asked):
            steps = (
                subject.extract.inputs.preprocessing
                if isinstance(subject.extract, TorchExtract)
                else None
            )
            fields = {"preprocessing": steps, **declared}
        given, _ = _layered(session, asked, fields)
        return given, (f"untrained: {given.id}",)
    if isinstance(model, str):
        spec = session.catalog.model(model)
        built = untrained_of(session, model)
        if isinstance(built, LayeredModel):
            how = (
                f"the model {spec.untrained}"
                if spec.untrained
                else "the same model built without its weights"
            )
            return built, (f"untrained: {how}",)
        if not spec.weights:
            return None, ("no untrained twin: the model has no trained weights",)
    if not isinstance(subject.extract, TorchExtract):
        return None, ("no untrained twin: the model is no torch module",)
    return _drawn_again(subject, subject.extract, session.request.seed)


def _drawn_again(
    subject: LayeredModel, extract: TorchExtract, seed: int
) -> tuple[LayeredModel | None, tuple[str, ...]]:
    """Return the model with a copy of its module whose weights are drawn again."""
    try:
        module, shuffled = untrained(extract.module, seed)
    except ModelError as error:
        return None, (f"no untrained twin: {error}",)
    notes = [f"untrained: a copy with weights drawn by reset_parameters, seed {seed}"]
    if shuffled:
        if len(shuffled) > 3:
            more = f" and {len(shuffled) - 3} more"
        else:
            more = ""
        names = ", ".join(shuffled[:3])
        notes.append(
            f"untrained: without an initialiser, in random order: {names}{more}"
        )
    return _with_module(subject, extract, module), tuple(notes)


def _with_module(
    subject: LayeredModel, extract: TorchExtract, module: Module
) -> LayeredModel:
    """Return a model with another module in place of its own, and an identity of its own."""
    known = (
        subject.identity()
        if callable(subject.identity)
        else dict(subject.identity or {})
    )
    described = {**known, "untrained": True}
    return replace(
        subject,
        id=f"{subject.id} untrained",
        extract=replace(extract, module=module),
        identity=in_memory(module, described, origin=extract.module),
    )


def _plain(score: Score) -> dict[str, float | None]:
    """Return value and interval for JSON, to six digits; None for an unknown end."""
    return {name: _finite(getattr(score, name)) for name in ("value", "low", "high")}


def _finite(value: float) -> float | None:
    if math.isfinite(value):
        return float(f"{value:.6g}")
    return None


def _range(value: float, low: float, high: float) -> str:
    if not math.isfinite(value):
        return "–"
    if not math.isfinite(low):
        return f"{value:.3f}"
    return f"{value:.3f} [{low:.3f}, {high:.3f}]"


def _in_words(score: Score) -> str:
    return _range(score.value, score.low, score.high)
