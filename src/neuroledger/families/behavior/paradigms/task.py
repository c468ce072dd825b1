"""Task: obtain a model's decisions about stimuli, to compare them with those of people or with the truth."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd
import xarray as xr
from pydantic import Field, PositiveFloat

from neuroledger.data.arrays import Array, floats
from neuroledger.data.assembly import among
from neuroledger.data.dataset import Dataset
from neuroledger.data.factorize import coordinate, encode, locate
from neuroledger.data.normalise_input import as_text
from neuroledger.data.screen import spanning
from neuroledger.data.stimuli import StimulusSet
from neuroledger.engine.measurement import Measurement
from neuroledger.errors import DataError, ModelError, RequestError
from neuroledger.families.behavior.simulated import simulated_trials
from neuroledger.families.behavior.tasks.microsaccades import (
    Microsaccades,
    in_trials,
    looks,
    of_stimuli,
)
from neuroledger.families.fields import AtLeastOne, AtLeastTwo
from neuroledger.models.model import Model, Task, perform
from neuroledger.spec.base import Frozen
from neuroledger.spec.registry import paradigm

__all__ = ["task"]


class Derived(Frozen):
    """A column derived from another: its value, or the remainder modulo ``modulo``, looked up in ``values``."""

    column: str
    modulo: AtLeastTwo | None = None
    values: dict[str, str] = Field(default_factory=dict)


class Other(Frozen):
    """Selects rows whose value differs from that of another column."""

    differs_from: str


class Condition(Frozen):
    """Names of the stimulus sets of one condition: the tested stimuli, and those that the readout is fitted to."""

    stimuli: str | None = None
    fitting: str | None = None


Rows = dict[str, str | int | float | list[str] | list[int] | list[float] | Other]
SEPARATOR = "|"
Screen = Literal["visual_degrees", "as_is"]


@paradigm(
    "task",
    version=1,
    shows={"stimuli"},
    asks=lambda values: {f"decisions:{values['decide']}"},
    itself=False,
    permuted="source",
    simulates=simulated_trials,
)
def task(
    model: Model,
    data: Dataset,
    *,
    decide: Literal["label", "probabilities", "odd_one_out"],
    choices: tuple[str, ...] = (),
    label_column: str = "image_label",
    fitting: str | Rows | None = None,
    test: Rows | None = None,
    derive: dict[str, Derived] | None = None,
    conditions: dict[str, Condition] | None = None,
    people: str | None = None,
    alternatives: tuple[str, ...] = (),
    similarity: Literal["dot", "cosine"] = "dot",
    visual_degrees: PositiveFloat | None = None,
    screen: Screen = "visual_degrees",
    trials: AtLeastOne = 1,
    microsaccades: Microsaccades | None = None,
) -> Measurement:
    """Return the decisions of the model and those of the data.

    Parameters
    ----------
    model, data
        The model and the data. The assembly contains trials of people ``(presentation,)``; without an assembly the right
        answers are those of ``label_column``.
    decide
        ``label``: one of ``choices``, from the model's own output; ``probabilities``: of every label of the fitting
        stimuli, from a readout fitted to them; ``odd_one_out``: the odd stimulus of each triplet, whose
        ``stimulus_id`` is three ids joined by ``|``.
    choices
        Labels for ``decide: label``; by default those in ``label_column``, or the truths of the trials, sorted.
    fitting
        Stimuli for the readout: the name of another stimulus set of the data, or conditions on columns of the
        stimulus table. They must not be tested.
    test
        Conditions on columns of the table that select the tested stimuli; by default the stimuli of the assembly, or
        all that the readout is not fitted to.
    derive
        New columns of all stimulus tables: ``{image_label: {column: number, modulo: 2, values: {"0": odd, "1": same}}}``.
    conditions
        Several sets of stimuli in one task, each with a readout fitted to its own stimuli: ``source`` contains all
        answers, with the coordinate ``condition``.
    people
        Condition of the data whose values are used for people in every condition, for those people who also have a value in
        that condition. It shows how fitting the readout to other displays changes the results of the same test.
    alternatives
        Coordinates of the trials that contain the offered labels (two for a two-alternative choice): the model
        answers each trial with the most probable of them. For ``odd_one_out``: the three coordinates of the stimuli
        of a triplet, if ``stimulus_id`` does not contain them.
    visual_degrees
        Visual angle of the stimuli, if the stimulus set does not define it.
    screen
        ``as_is`` shows the stimulus files unchanged, whatever visual angle they span.
    trials
        Number of presentations of each stimulus to a stochastic model.
    microsaccades
        Show every stimulus in several trials, displaced by up to 0.05 degrees, so that a deterministic model decides several
        times, and fit the readout to the given number of trials. A model that identifies stimuli by their ids decides once.

    Returns
    -------
    Measurement
        ``source``: labels ``(presentation,)`` or probabilities ``(presentation, choice)`` with ``stimulus_id`` and
        the columns of the stimulus table; ``target`` and ``repeated``: the trials, with any missing columns of the table.

    Raises
    ------
    RequestError
        Stimuli are both fitted to and tested, or there are no fitting stimuli.
    DataError
        The data lack trials, stimuli, columns or coordinates that the task needs.
    ModelError
        The model does not answer every stimulus exactly once.
    """
    _require_one_decision(decide, trials, alternatives, microsaccades)
    target = _people(data.assembly, conditions, people)
    data = _add_derived_columns(data, derive)
    stimuli = _stimuli(data)
    if conditions:
        ask = partial(
            task,
            model,
            decide=decide,
            choices=choices,
            label_column=label_column,
            test=test,
            visual_degrees=visual_degrees,
            screen=screen,
            trials=trials,
            microsaccades=microsaccades,
        )
        source = _in_conditions(
            ask, replace(data, stimuli=stimuli), conditions, fitting
        )
        if target is None:
            target = source
        return Measurement(source, target, target)
    display = (visual_degrees, screen)
    if decide == "odd_one_out":
        return _odd_one_out(
            model, data, stimuli, similarity, display, trials, alternatives
        )
    fitted = _fitted(data, stimuli, decide, fitting, label_column)
    tested, target = _of_test(stimuli, target, test, fitted)
    labels = _labels(tested, target, choices, label_column) if decide == "label" else ()
    question = Task(decide, choices=labels, label_column=label_column)
    presented, learned = _shown(model, tested, fitted, display, microsaccades)
    source = perform(model, question, presented, learned, trials)
    source = _with_columns(_one_answer_each(source, presented, model.id), presented)
    if target is None:
        target = _with_stimulus(_truths(presented, label_column), presented)
    elif "presentation" in target.dims:
        target = _with_stimulus(target, tested)
    if microsaccades is not None:
        source = of_stimuli(source)
        if data.assembly is None:
            target = of_stimuli(target)
    _require_fitted_labels(source, target)
    if alternatives:
        source, target = _choose(source, target, alternatives)
    return Measurement(source, target, target)


def _require_one_decision(
    decide: str,
    trials: int,
    alternatives: tuple[str, ...],
    microsaccades: Microsaccades | None,
) -> None:
    """Refuse microsaccades, which show a stimulus in several trials, together with other kinds of trials."""
    if microsaccades is None:
        return
    if decide == "odd_one_out" or trials > 1 or alternatives:
        raise RequestError(
            "`microsaccades` say how often each stimulus is shown, one decision for each trial: leave out `trials` and "
            "`alternatives`, and ask for labels or probabilities"
        )


def _people(
    target: xr.DataArray | None,
    conditions: Mapping[str, Condition] | None,
    people: str | None,
) -> xr.DataArray | None:
    """Return the trials, in every condition of the same people if ``people`` names theirs."""
    if people is None:
        return target
    if not conditions or target is None:
        raise RequestError(
            "`people` names one of the data's conditions: it needs `conditions` and an assembly"
        )
    return _of_people(target, tuple(conditions), people)


def _in_conditions(
    ask: Callable[..., Measurement],
    data: Dataset,
    conditions: Mapping[str, Condition],
    fitting: str | Rows | None,
) -> xr.DataArray:
    """Return the answers to the task in each condition, one after the other."""
    parts = []
    for name, condition in conditions.items():
        shown = data.stimuli
        if condition.stimuli is not None:
            shown = _extra_stimuli(data, condition.stimuli, "condition")
        part = ask(
            replace(data, stimuli=shown, assembly=None),
            fitting=condition.fitting or fitting,
        ).source
        names = [name] * part.sizes["presentation"]
        parts.append(part.assign_coords(condition=("presentation", names)))
    return xr.concat(
        parts, "presentation", coords="different", compat="equals", join="exact"
    )


def _fitted(
    data: Dataset,
    stimuli: StimulusSet,
    decide: str,
    fitting: str | Rows | None,
    label_column: str,
) -> StimulusSet | None:
    if decide != "probabilities":
        return None
    return _labelled(_fitting(data, stimuli, fitting), label_column)


def _of_test(
    stimuli: StimulusSet,
    target: xr.DataArray | None,
    test: Rows | None,
    fitted: StimulusSet | None,
) -> tuple[StimulusSet, xr.DataArray | None]:
    """Return the tested stimuli and their trials."""
    if target is None or "presentation" not in target.dims:
        return _tested(stimuli, None, test, fitted), target
    tested = _tested(stimuli, target, test, fitted)
    return tested, target if test is None else _rows_of_stimuli(target, tested)


def _shown(
    model: Model,
    tested: StimulusSet,
    fitted: StimulusSet | None,
    display: tuple[float | None, Screen],
    microsaccades: Microsaccades | None,
) -> tuple[StimulusSet, StimulusSet | None]:
    """Return both sets as they are displayed; a model that looks at them sees them displaced."""
    tested = _on_screen(tested, *display)
    if fitted is None:
        fitted = None
    else:
        fitted = _on_screen(fitted, *display)
    if microsaccades is None or not looks(model):
        return tested, fitted
    tested = in_trials(tested, microsaccades.tested)
    if fitted is not None:
        fitted = in_trials(fitted, microsaccades.fitted)
    return tested, fitted


def _add_derived_columns(
    data: Dataset, derive: Mapping[str, Derived] | None
) -> Dataset:
    """Add the derived columns to every stimulus table that has their source column."""
    if not derive:
        return data

    def add_columns(stimuli: StimulusSet) -> StimulusSet:
        added = {
            name: _derived(stimuli, rule)
            for name, rule in derive.items()
            if rule.column in stimuli.table
        }
        return replace(stimuli, table=stimuli.table.assign(**added))

    sets = {name: add_columns(extra) for name, extra in data.extra_stimuli.items()}
    missing = [
        rule.column
        for rule in derive.values()
        if data.stimuli is None or rule.column not in data.stimuli.table
    ]
    if missing:
        raise RequestError(
            f"data set {data.id!r} has no column {missing[0]!r} to derive another one from"
        )
    return replace(
        data,
        stimuli=None if data.stimuli is None else add_columns(data.stimuli),
        extra_stimuli=sets,
    )


def _derived(stimuli: StimulusSet, rule: Derived) -> Array:
    values = stimuli.table[rule.column].to_numpy()
    if rule.modulo is not None:
        try:
            values = values.astype(np.int64) % rule.modulo
        except ValueError:
            raise DataError(
                f"column {rule.column!r} of {stimuli.id!r} contains values that are not whole numbers"
            ) from None
    texts = as_text(values)
    if not rule.values:
        return texts
    unknown = sorted(set(texts.tolist()) - set(rule.values))
    if unknown:
        raise DataError(
            f"column {rule.column!r} of {stimuli.id!r} holds {unknown[0]!r}, which `values` does not name"
        )
    return np.asarray([rule.values[text] for text in texts.tolist()])


def _rows_of_stimuli(target: xr.DataArray, tested: StimulusSet) -> xr.DataArray:
    """Select the trials of the tested stimuli."""
    rows = np.flatnonzero(locate(coordinate(target, "stimulus_id"), tested.ids) >= 0)
    if not rows.size:
        raise RequestError(
            f"no trial is of the {len(tested)} stimuli that are tested; correct `test`"
        )
    return target.isel(presentation=rows)


def _of_people(
    target: xr.DataArray, conditions: tuple[str, ...], people: str
) -> xr.DataArray:
    """Return, for each condition, the values of ``people`` from subjects with a value in that condition."""
    columns = {name: coordinate(target, name) for name in ("condition", "subject")}
    missing = [name for name, values in columns.items() if values is None]
    if missing or target.ndim != 1 or target.dtype.kind != "f":
        raise DataError(
            f"`people` needs one value with {missing[0] if missing else 'condition'!r} for each person"
        )
    condition = np.asarray(columns["condition"]).astype(str)
    subject = np.asarray(columns["subject"]).astype(str)
    finite = np.isfinite(target.values)
    rows: list[int] = []
    names: list[str] = []
    for name in conditions:
        others = subject[finite & (condition == name)]
        is_shared = finite & (condition == people) & np.isin(subject, others)
        shared = np.flatnonzero(is_shared).tolist()
        if not shared:
            known = ", ".join(sorted(set(condition)))
            raise DataError(
                f"no subject has a value in both {name!r} and {people!r}; the data's conditions are {known}"
            )
        rows += shared
        names += [name] * len(shared)
    dim = str(target.dims[0])
    return target.isel({dim: rows}).assign_coords(condition=(dim, names))


def _extra_stimuli(data: Dataset, name: str, purpose: str) -> StimulusSet:
    if name not in data.extra_stimuli:
        known = ", ".join(data.extra_stimuli) or "none"
        raise RequestError(
            f"data set {data.id!r} has no stimulus set {name!r} for the {purpose}; known: {known}"
        )
    return data.extra_stimuli[name]


def _require_fitted_labels(source: xr.DataArray, target: xr.DataArray) -> None:
    """Check that the readout can give every right answer."""
    truth = coordinate(target, "truth")
    if truth is None or "choice" not in source.dims:
        return
    choices = set(source["choice"].values.astype(str).tolist())
    unknown = sorted(set(truth.astype(str).tolist()) - choices)
    if unknown:
        raise DataError(
            f"{len(unknown)} of the right answers are not labels that the readout was fitted to, first {unknown[0]!r} "
            f"(fitted: {', '.join(sorted(choices))}): fit it on every class that is tested"
        )


def _stimuli(data: Dataset) -> StimulusSet:
    """Return the stimuli; those without a set get one without files, from the coordinates of the trials."""
    if data.stimuli is not None:
        return data.stimuli
    if data.assembly is None:
        raise DataError(f"data set {data.id!r} has neither stimuli nor trials")
    ids = encode(coordinate(data.assembly, "stimulus_id"))
    first = np.unique(ids.codes, return_index=True)[1]
    table = pd.DataFrame({"stimulus_id": ids.labels.astype(str)})
    for name, values in data.assembly.coords.items():
        # A coordinate that differs between trials of a stimulus is not a property of the stimulus.
        if values.dims == ("presentation",) and name != "stimulus_id":
            codes = encode(values.values).codes
            if (codes[first][ids.codes] == codes).all():
                table[str(name)] = values.values[first]
    return StimulusSet(data.id, table)


def _matching(stimuli: StimulusSet, conditions: Rows, purpose: str) -> StimulusSet:
    keep = np.ones(len(stimuli), dtype=bool)
    for column, accepted in conditions.items():
        if column not in stimuli.table:
            raise RequestError(
                f"stimuli {stimuli.id!r} have no column {column!r} to choose the {purpose} stimuli by"
            )
        if isinstance(accepted, Other):
            if accepted.differs_from not in stimuli.table:
                raise RequestError(
                    f"stimuli {stimuli.id!r} have no column {accepted.differs_from!r} to compare with"
                )
            other = stimuli.table[accepted.differs_from].astype(str)
            keep &= (stimuli.table[column].astype(str) != other).to_numpy()
            continue
        values = accepted if isinstance(accepted, list) else [accepted]
        where = f"stimuli {stimuli.id!r}: {purpose} {column}"
        keep &= among(stimuli.table[column].to_numpy(), values, where)
    if not keep.any():
        raise RequestError(
            f"no stimulus of {stimuli.id!r} fits the {purpose} conditions {conditions}"
        )
    return stimuli.select(
        [id for id, matches in zip(stimuli.ids, keep, strict=True) if matches]
    )


def _fitting(
    data: Dataset, stimuli: StimulusSet, fitting: str | Rows | None
) -> StimulusSet:
    if fitting is None:
        raise RequestError(
            "probabilities need `fitting`: stimuli with labels that the readout is fitted to"
        )
    if isinstance(fitting, str):
        if fitting not in data.extra_stimuli:
            known = ", ".join(data.extra_stimuli) or "none"
            raise RequestError(
                f"data set {data.id!r} has no stimulus set {fitting!r} to fit on; known: {known}"
            )
        return data.extra_stimuli[fitting]
    return _matching(stimuli, fitting, "fitting")


def _labelled(fitted: StimulusSet, column: str) -> StimulusSet:
    """Return the fitting stimuli; refuse stimuli without a label."""
    if column not in fitted.table:
        known = ", ".join(map(str, fitted.table.columns))
        raise RequestError(
            f"fitting stimuli {fitted.id!r} have no column {column!r} with labels; they have {known}"
        )
    missing = fitted.table[column].isna().to_numpy()
    if missing.any():
        first = fitted.ids[int(missing.argmax())]
        raise DataError(
            f"{int(missing.sum())} fitting stimuli have no {column!r}, first {first!r}"
        )
    return fitted


def _tested(
    stimuli: StimulusSet,
    target: xr.DataArray | None,
    test: Rows | None,
    fitted: StimulusSet | None,
) -> StimulusSet:
    if test is not None:
        chosen = _matching(stimuli, test, "test")
    elif target is not None:
        ids = encode(coordinate(target, "stimulus_id")).labels
        chosen = stimuli.select(list(map(str, ids)))
    else:
        has_fitted = fitted is not None and fitted.id == stimuli.id
        if fitted is not None and has_fitted:
            used = set(fitted.ids)
        else:
            used = set()
        chosen = stimuli.select([id for id in stimuli.ids if id not in used])
    overlap = _overlap(stimuli, fitted, chosen)
    if overlap:
        raise RequestError(
            f"{len(overlap)} stimuli are both fitted on and tested, first {overlap[0]!r}"
        )
    return chosen


def _overlap(
    stimuli: StimulusSet, fitted: StimulusSet | None, chosen: StimulusSet
) -> list[str]:
    """Return the tested stimuli that are fitted too; those of two sets are compared by their files."""
    if fitted is None:
        return []
    if fitted.id != stimuli.id:
        return _same_files(fitted, chosen)
    used = set(fitted.ids)
    return [id for id in chosen.ids if id in used]


def _same_files(fitted: StimulusSet, chosen: StimulusSet) -> list[str]:
    """Return the ids in ``chosen`` whose files have the same content as a file in ``fitted``."""
    digests = []
    for stimuli in (fitted, chosen):
        if stimuli.archive is None and stimuli.contents is None:
            return []
        _ = stimuli.content_sha256  # computes and stores the hash of every file, also for the store of activations
        digests.append(
            [stimuli.digests[name] for name in stimuli.table["filename"].astype(str)]
        )
    known = set(digests[0])
    return [
        id for id, digest in zip(chosen.ids, digests[1], strict=True) if digest in known
    ]


def _labels(
    stimuli: StimulusSet,
    target: xr.DataArray | None,
    choices: tuple[str, ...],
    column: str,
) -> tuple[str, ...]:
    if choices:
        return choices
    if column in stimuli.table:
        return tuple(sorted(set(map(str, stimuli.table[column]))))
    truth = None
    if target is not None:
        truth = coordinate(target, "truth")
    if truth is None:
        raise DataError(
            f"there are no choices: give `choices`, a column {column!r}, or trials with a truth"
        )
    return tuple(sorted(set(map(str, truth))))


def _on_screen(
    stimuli: StimulusSet, visual_degrees: float | None, screen: Screen
) -> StimulusSet:
    if "filename" not in stimuli.table:
        return stimuli
    return spanning(stimuli, visual_degrees, screen)


def _one_answer_each(
    source: xr.DataArray, stimuli: StimulusSet, model: str
) -> xr.DataArray:
    """Return one answer per stimulus, in the order of the stimuli, without a choice dimension of length 1."""
    if "choice" in source.dims and source.sizes["choice"] == 1:
        source = source.isel(choice=0, drop=True)
    if coordinate(source, "stimulus_id") is None:
        raise ModelError(
            f"model {model!r} does not say which stimulus each answer belongs to"
        )
    source = _averaged(source, model)
    rows = locate(stimuli.ids, source["stimulus_id"].values)
    if (rows < 0).any():
        raise ModelError(
            f"model {model!r} did not answer {int((rows < 0).sum())} of {len(stimuli)} stimuli"
        )
    return source.isel(presentation=rows)


def _averaged(source: xr.DataArray, model: str) -> xr.DataArray:
    """Average the probabilities over presentations of the same stimulus."""
    ids = encode(source["stimulus_id"].values)
    if len(ids.labels) == ids.codes.size:
        return source
    if "choice" not in source.dims:
        raise ModelError(
            f"model {model!r} gives several labels to one stimulus; one decision for each is needed"
        )
    ordered = source.transpose("presentation", "choice")
    total = np.zeros((len(ids.labels), ordered.sizes["choice"]))
    np.add.at(total, ids.codes, floats(ordered.values))
    return xr.DataArray(
        total / np.bincount(ids.codes)[:, None],
        dims=("presentation", "choice"),
        coords={
            "stimulus_id": ("presentation", ids.labels),
            "choice": ordered["choice"].values,
        },
    )


def _with_columns(source: xr.DataArray, stimuli: StimulusSet) -> xr.DataArray:
    columns = [
        str(name)
        for name in stimuli.table.columns
        if name not in {"stimulus_id", "filename"}
    ]
    free = [
        name
        for name in columns
        if name not in source.coords and name not in source.dims
    ]
    return source.assign_coords(
        {name: ("presentation", stimuli.table[name].to_numpy()) for name in free}
    )


def _with_stimulus(target: xr.DataArray, stimuli: StimulusSet) -> xr.DataArray:
    """Add the columns of the stimulus table to the trials."""
    table = stimuli.table.drop(columns=["filename"], errors="ignore")
    free = [
        str(name)
        for name in table.columns
        if name not in target.coords and name not in target.dims
    ]
    rows = locate(coordinate(target, "stimulus_id"), stimuli.ids)
    if not free or (rows < 0).any():
        return target
    return target.assign_coords(
        {name: ("presentation", table[name].to_numpy()[rows]) for name in free}
    )


def _truths(stimuli: StimulusSet, column: str) -> xr.DataArray:
    if column not in stimuli.table:
        raise DataError(
            f"stimuli {stimuli.id!r} have no column {column!r} with the right answers"
        )
    labels = stimuli.table[column].astype(str).to_numpy(dtype=str)
    coords = {
        "stimulus_id": ("presentation", np.asarray(stimuli.ids)),
        "truth": ("presentation", labels),
    }
    return xr.DataArray(labels, dims=("presentation",), coords=coords)


def _choose(
    source: xr.DataArray, target: xr.DataArray, alternatives: tuple[str, ...]
) -> tuple[xr.DataArray, xr.DataArray]:
    """Return the answer to each pair of stimulus and alternatives, and the trials with ids that contain both."""
    if "choice" not in source.dims:
        raise RequestError(
            "a choice between alternatives needs `decide: probabilities`"
        )
    labels = np.sort(
        np.stack([_offered_alternative(target, name) for name in alternatives], axis=1),
        axis=1,
    )
    ids = np.asarray(target["stimulus_id"].values).astype(str)
    keys = np.asarray(
        [SEPARATOR.join((id, *row)) for id, row in zip(ids, labels, strict=True)]
    )
    distinct, first = np.unique(keys, return_index=True)
    columns = locate(labels[first].ravel(), source["choice"].values).reshape(
        len(first), -1
    )
    if (columns < 0).any():
        raise DataError(
            "a label on offer is not among the labels that the readout was fitted to"
        )
    rows = locate(ids[first], source["stimulus_id"].values)
    values = source.transpose("presentation", "choice").values[rows[:, None], columns]
    answers = labels[first][np.arange(len(first)), values.argmax(axis=1)]
    chosen = xr.DataArray(
        answers,
        dims=("presentation",),
        coords={"stimulus_id": ("presentation", distinct)},
    )
    return chosen, target.assign_coords(stimulus_id=("presentation", keys))


def _offered_alternative(target: xr.DataArray, name: str) -> Array:
    values = coordinate(target, name)
    if values is None:
        raise DataError(f"trials have no coordinate {name!r} with what is on offer")
    return values.astype(str)


def _odd_one_out(
    model: Model,
    data: Dataset,
    stimuli: StimulusSet,
    similarity: Literal["dot", "cosine"],
    span: tuple[float | None, Screen],
    trials: int,
    alternatives: tuple[str, ...],
) -> Measurement:
    target = data.assembly
    if target is None:
        raise DataError(
            f"data set {data.id!r} has no trials of people, and with them no triplets"
        )
    if alternatives:
        parts = [_offered_alternative(target, name) for name in alternatives]
        target = target.assign_coords(
            stimulus_id=(
                "presentation",
                [SEPARATOR.join(row) for row in zip(*parts, strict=True)],
            )
        )
    if target.dtype.kind in "iuf":  # numeric ids in the file
        target = target.copy(data=as_text(target.values))
    triplets = _triplets(np.asarray(target["stimulus_id"].values).astype(str))
    ids = sorted({id for triplet in triplets for id in triplet})
    question = Task("odd_one_out", similarity=similarity, triplets=triplets)
    known = (
        stimuli
        if data.stimuli is not None
        else StimulusSet(data.id, pd.DataFrame({"stimulus_id": ids}))
    )
    source = perform(
        model, question, _on_screen(known.select(ids), *span), None, trials
    )
    if "choice" in source.dims:
        source = source.isel(choice=0, drop=True)
    return Measurement(source, target, target)


def _triplets(keys: Array) -> tuple[tuple[str, str, str], ...]:
    triplets = []
    for key in dict.fromkeys(keys.tolist()):
        parts = key.split(SEPARATOR)
        if len(parts) != 3:
            raise DataError(
                f"{key!r} does not name three stimuli joined by {SEPARATOR!r}"
            )
        triplets.append((parts[0], parts[1], parts[2]))
    return tuple(triplets)
