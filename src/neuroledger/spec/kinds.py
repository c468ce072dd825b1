"""The seven kinds of spec: dataset, metric, ceiling, benchmark, model, suite, claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import (
    Field,
    JsonValue,
    StringConstraints,
    field_validator,
    model_validator,
)

from neuroledger.spec.base import (
    Component,
    Direction,
    DownloadName,
    FileName,
    Frozen,
    Id,
    Override,
    Published,
    Scale,
    Sha256,
    SourceFile,
    Spec,
    Stated,
    is_obeyed,
    is_pattern,
)
from neuroledger.spec.channels import Shown
from neuroledger.spec.expectations import Expectations
from neuroledger.spec.lists import Listed, ListTarget

__all__ = [
    "KINDS",
    "Aggregation",
    "BenchmarkSpec",
    "CeilingSpec",
    "ClaimSpec",
    "Controls",
    "DatasetSpec",
    "ErrorRule",
    "FloorRule",
    "IntervalRule",
    "MetricSpec",
    "ModelSpec",
    "NormaliseRule",
    "Pretraining",
    "Resources",
    "SealedAnswers",
    "SplitsSpec",
    "SuiteSpec",
    "Weighted",
]


# A fraction, or a number of items.
PartSize = (
    Annotated[float, Field(gt=0, lt=1)] | Annotated[int, Field(ge=1, strict=True)]
)


class Disjoint(Frozen):
    """No value of ``by`` is in both parts: training presentations that share a value with the test part are left out.

    Presentations that have one of the values in ``except`` in another coordinate are exempt, in both parts.
    """

    by: str
    except_: Annotated[
        dict[str, tuple[str | int | float, ...]], Field(alias="except")
    ] = Field(default_factory=dict)


class SplitsSpec(Frozen):
    """Division of presentations into train and test parts."""

    name: Literal[
        "shuffle", "kfold", "group", "leave_one_out", "coordinate", "predefined"
    ] = "shuffle"
    folds: Annotated[int, Field(ge=1, le=10_000)] = 10
    train: PartSize | None = None
    test: PartSize | None = None
    by: str = "stimulus_id"
    unique: bool = False
    repeats: Literal["together", "apart"] = "together"
    stratify: str | None = None
    groups: str | None = None
    coordinate: str | None = None
    train_values: tuple[str | int | float, ...] = ()
    test_values: tuple[str | int | float, ...] = ()
    disjoint: Annotated[
        Disjoint | None, Field(exclude_if=lambda value: value is None)
    ] = None
    seed: Annotated[int, Field(ge=0)] = 1


class Aggregation(Frozen):
    """Reduction of one dimension of the samples; missing values are skipped."""

    over: str
    with_: Annotated[
        Literal["mean", "median", "sum", "max", "min", "abs_mean"], Field(alias="with")
    ]


class ErrorRule(Frozen):
    """The error along one dimension: standard error of the mean, or standard deviation."""

    over: str
    with_: Annotated[Literal["sem", "std"], Field(alias="with")] = "sem"


class IntervalRule(Frozen):
    """Sources of variation that the 95 % interval covers; without this rule, all over which the metric varies."""

    over: tuple[str, ...]


class _Comparison(Spec):
    """Fields that metrics and ceilings share: a registered function, its splits, and the aggregation of its samples."""

    compare: Component
    splits: SplitsSpec | None = None
    aggregate: tuple[Aggregation, ...] = ()
    error: ErrorRule | None = None
    interval: IntervalRule | None = None
    scale: Scale
    direction: Direction = "higher"
    unit: str | None = None
    compat: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)


class MetricSpec(_Comparison):
    """A metric: compares the outputs of a model with recorded data, or computes the cost of a run.

    ``chance_level`` is the expected score, from 0 to 1, of a model without access to the stimuli: a number, or one over
    the number of classes.
    """

    chance_level: Annotated[float, Field(ge=0, lt=1)] | Literal["1/classes"] = 0.0


class CeilingSpec(_Comparison):
    """A ceiling: the best score that the noise of the data allows."""


def _folder_name(id: str) -> str:
    """Refuse an id whose folder of data a program or file system would obey."""
    if is_obeyed(id):
        raise ValueError(
            f"{id!r} is a name that a program or file system obeys: choose another id"
        )
    return id


class DatasetSpec(Spec):
    """A data set: pinned files, the reader that converts them to stimuli and an assembly, and its expectations."""

    license: str
    license_note: str | None = None
    access: Literal["public", "private"] = "public"
    access_steps: tuple[str, ...] = ()
    source: str | None = None
    simulated: bool = False
    species: str | None = None
    modality: str | None = None
    stimuli: Shown = "images"
    files: dict[FileName, SourceFile] = Field(default_factory=dict)
    downloads: dict[DownloadName, Stated] = Field(default_factory=dict)
    lists: dict[ListTarget, Listed] = Field(default_factory=dict)
    members: Annotated[
        tuple[Id, ...], Field(exclude_if=lambda members: not members)
    ] = ()
    """Data sets that this one consists of: their files are its files, and its reader joins what their readers return."""
    reader: Component | None = None
    degrees: Annotated[float, Field(gt=0)] | None = None
    expectations: Expectations = Field(default_factory=Expectations)
    unavailable: str | None = None
    unread: str | None = None
    """Why no reader supports the pinned files as published; they can still be fetched, and converted by hand."""
    defects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    signatures: tuple[Component, ...] = ()
    """What the page of the data set shows that its signals are known by, such as evoked responses."""
    made_from: Sha256 | None = None
    """SHA-256 of the names and bytes of the folder from which `neuroledger start` made the data set."""

    @property
    def closed(self) -> str | None:
        """Why these data cannot be scored, or None."""
        return self.unavailable or self.unread

    @field_validator("id")
    @classmethod
    def _own_folder(cls, id: str) -> str:
        if id.casefold() == "models":
            raise ValueError(
                "the folder data/models holds the weights of models: choose another id"
            )
        return _folder_name(id)

    @field_validator("files")
    @classmethod
    def _no_paths_of_packages(
        cls, files: dict[str, SourceFile]
    ) -> dict[str, SourceFile]:
        # A checkpoint of torch has the same ending, so that weights may have it.
        for name in files:
            if name.casefold().endswith(".pth"):
                raise ValueError(
                    f"{name!r} is a name that Python may obey at its start: rename the file"
                )
        return files

    @field_validator("downloads")
    @classmethod
    def _inside(cls, downloads: dict[str, Stated]) -> dict[str, Stated]:
        for name, download in downloads.items():
            if ".." in name.split("/"):
                raise ValueError(f"{name!r} leads out of the folder of downloads")
            if is_pattern(name) and download != Stated():
                raise ValueError(
                    f"{name!r} matches many files, which have no common checksum or address: write `{{}}`"
                )
        return downloads

    @model_validator(mode="after")
    def _readable(self) -> DatasetSpec:
        has_files = bool(self.files) or "files" in self.lists or bool(self.members)
        if self.unavailable is not None and self.unread is not None:
            raise ValueError("a data set is `unavailable` or `unread`, not both")
        if self.unread is not None and not has_files:
            raise ValueError("a data set that is `unread` needs `files`")
        if self.closed is None and (not has_files or self.reader is None):
            raise ValueError(
                "a data set needs `files` and a `reader`, or the reason why it is `unavailable`"
            )
        return self

    @model_validator(mode="after")
    def _consists_of_others(self) -> DatasetSpec:
        if not self.members:
            return self
        if self.files or self.downloads or self.lists:
            raise ValueError(
                "a data set with `members` has their files: remove its own `files`, `downloads` and `lists`"
            )
        if len(self.members) < 2 or len(set(self.members)) < len(self.members):
            raise ValueError("`members` are two or more different data sets")
        return self

    @model_validator(mode="after")
    def _obtainable(self) -> DatasetSpec:
        for name, pin in self.files.items():
            if pin.package is not None:
                raise ValueError(
                    f"{name}: only the weights of a model may be in a `package`"
                )
        sourceless = [name for name, pin in self.files.items() if pin.by_hand]
        if sourceless and not self.access_steps:
            raise ValueError(
                f"{sourceless[0]} has neither `dvc: true` nor a `url`: give one, or state in `access_steps` how to get it"
            )
        return self


class Controls(Frozen):
    """Models that must reach the ceiling (positive) and models that must stay at the floor (negative).

    The data in place of a model (``itself``) must reach the ceiling. They may exceed it by the noise that they share with
    themselves, a factor of 1/ρ for a reliability ρ; above ``itself_at_most`` the ceiling is too low for normalisation.
    ``floor_at_most`` is a score; its default is relative to the metric's chance level.
    """

    positive: tuple[Id, ...] = ()
    negative: tuple[Id, ...] = ()
    ceiling_at_least: Annotated[float, Field(gt=0)] = 0.8
    itself_at_most: Annotated[float, Field(ge=1)] = 10.0
    floor_at_most: Annotated[float, Field(ge=0)] = 0.1


class FloorRule(Frozen):
    """Normalisation by the score of a dummy and the perfect score: (score - dummy) / (perfect - dummy)."""

    dummy: Id | float
    fallback: Id | None = None
    perfect: float = 1.0


class NormaliseRule(Frozen):
    """Normalisation of the score, if it does not follow from the scales of metric and ceiling, or is clipped to [0, 1].

    ``formula``: ``scales`` follows from the scales; ``ratio`` is r/c, ``square`` (r/c)², ``explained`` r²/c.
    """

    by: Literal["ceiling", "floor"] = "ceiling"
    formula: Literal["scales", "ratio", "square", "explained"] = "scales"
    clip: bool = False


class SealedAnswers(Frozen):
    """Answers that their owner keeps: their hash, how many they are, and how much looks at them tell.

    A look returns the best share of right answers so far, in ``steps`` steps from 0 to 1.
    """

    sealed: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
    items: Annotated[int, Field(ge=1)]
    steps: Annotated[int, Field(ge=2, le=1000)] = 20
    looks: Annotated[int, Field(ge=1, le=10**6)] = 10_000


class Resources(Frozen):
    """What a job needs of a machine; no part of the identity of a score. The larger of benchmark and model counts."""

    memory: (
        Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)? ?[MGT]B$")] | None
    ) = None
    """Such as `16 GB`; Dask workers declare it as `MEMORY`, in bytes."""
    gpus: Annotated[int, Field(ge=0)] = 0
    """Number of graphics cards; Dask workers declare it as `GPU`."""
    time: (
        Annotated[str, StringConstraints(pattern=r"^\d+(\.\d+)? ?(s|min|h)$")] | None
    ) = None
    """The longest that a job may take on a Dask worker, such as `2 h`; after it, the job is pending."""

    @property
    def bytes(self) -> int:
        """The memory in bytes; 0 if it is not declared."""
        return int(_amount(self.memory, {"MB": 1e6, "GB": 1e9, "TB": 1e12}))

    @property
    def seconds(self) -> float:
        """The time in seconds; 0 if it is not declared."""
        return _amount(self.time, {"s": 1, "min": 60, "h": 3600})


def _amount(text: str | None, units: Mapping[str, float]) -> float:
    """Return a number with its unit in the basic unit; 0 without a text."""
    if text is None:
        return 0.0
    unit = text.lstrip("0123456789. ")
    return float(text.removesuffix(unit)) * units[unit]


class BenchmarkSpec(Spec):
    """A benchmark: data, selection, paradigm, metric and ceiling, and its parent in the hierarchy."""

    parent: str
    dataset: Id
    select: dict[str, JsonValue] = Field(default_factory=dict)
    paradigm: Component
    metric: Id | Override | None = None
    metrics: tuple[Id | Override, ...] = ()
    ceiling: Id | Override | None = None
    floor: FloorRule | None = None
    generalise: tuple[str, ...] | None = None
    """What the claim generalises over: new stimuli, neuroids, subjects, …; by default all over which the metric varies.

    ``[stimulus, subject]`` claims new subjects with all their neuroids, where neuroids have a subject.
    """
    normalise: Literal["ceiling", "floor", "none"] | NormaliseRule | None = None
    each: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    """A coordinate, such as the subject: each value is scored and normalised separately, and the score is the mean."""
    compat: Literal["brainscore"] | None = None
    controls: Controls = Field(default_factory=Controls)
    answers: Annotated[
        SealedAnswers | None, Field(exclude_if=lambda value: value is None)
    ] = None
    """Answers that are sealed: the owner scores proposed predictions, and nobody else can."""
    unavailable: str | None = None
    published: tuple[Published, ...] = ()
    defects: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    superseded_by: Id | None = None
    resources: Annotated[
        Resources | None, Field(exclude_if=lambda value: value is None)
    ] = None

    @field_validator("metric", "ceiling", mode="before")
    @classmethod
    def _text_or_mapping(cls, value: object) -> object:
        if isinstance(value, dict):
            return Override.model_validate(value)
        return value

    @model_validator(mode="before")
    @classmethod
    def _unavailable_if_sealed(cls, value: object) -> object:
        if isinstance(value, dict) and value.get("answers") is not None:
            reason = "its answers are sealed; propose predictions"
            return {"unavailable": reason} | value
        return value

    @model_validator(mode="after")
    def _one_headline(self) -> BenchmarkSpec:
        if (self.metric is None) == (not self.metrics):
            raise ValueError(
                "give one `metric`, or several `metrics` of which the first is the headline"
            )
        if self.ceiling is not None and self.floor is not None:
            raise ValueError("normalise by a `ceiling` or by a `floor`, not by both")
        if self.normalised_by == "ceiling" and self.ceiling is None:
            raise ValueError("`normalise: ceiling` needs a `ceiling`")
        if self.normalised_by == "floor" and self.floor is None:
            raise ValueError("`normalise: floor` needs a `floor`")
        return self

    @property
    def normalised_by(self) -> Literal["ceiling", "floor", "none"]:
        """The normalisation of the headline metric."""
        rule = (
            self.normalise.by
            if isinstance(self.normalise, NormaliseRule)
            else self.normalise
        )
        return rule or (
            "ceiling" if self.ceiling else "floor" if self.floor else "none"
        )

    @property
    def all_metrics(self) -> tuple[Id | Override, ...]:
        """The headline metric first, then the others."""
        if self.metric is not None:
            return (self.metric,)
        return self.metrics


class Pretraining(Frozen):
    """A data set that a model was trained on, by its id and the SHA-256 of its recordings."""

    dataset: str
    recordings: tuple[Sha256, ...] = ()


class ModelSpec(Spec):
    """A model: a registered builder, its parameters and weights, and the map from regions to layers."""

    builder: Component | None = None
    weights: dict[FileName, SourceFile] = Field(default_factory=dict)
    downloads: dict[FileName, Stated] = Field(default_factory=dict)
    layers: tuple[str, ...] = ()
    regions: dict[str, str | tuple[str, ...]] = Field(default_factory=dict)
    commit: dict[str, JsonValue] | None = None
    readout: str | None = None
    logits: Annotated[str | None, Field(exclude_if=lambda value: value is None)] = None
    visual_degrees: Annotated[float, Field(gt=0)] | None = None
    pretraining: tuple[str | Pretraining, ...] = ()
    untrained: Annotated[Id | None, Field(exclude_if=lambda value: value is None)] = (
        None
    )
    """The model with the same builder and random weights: the control that shows what training adds."""
    control: Literal["positive", "negative"] | None = None
    simulated: bool = False
    benchmarks: tuple[str, ...] = ()
    license: str | None = None
    notes: tuple[str, ...] = ()
    unavailable: str | None = None
    resources: Annotated[
        Resources | None, Field(exclude_if=lambda value: value is None)
    ] = None

    _own_folder = field_validator("id")(_folder_name)

    @model_validator(mode="after")
    def _buildable(self) -> ModelSpec:
        if self.builder is None and self.unavailable is None:
            raise ValueError(
                "a model needs a `builder`, or the reason why it is `unavailable`"
            )
        sourceless = [name for name, pin in self.weights.items() if pin.by_hand]
        if sourceless:
            raise ValueError(
                f"{sourceless[0]} has no source: give either `dvc: true`, a `url` or a `package`"
            )
        return self


class Weighted(Frozen):
    """A benchmark in a suite, with its weight."""

    id: Id
    weight: Annotated[float, Field(gt=0)] = 1.0
    version: Annotated[int, Field(ge=1)] | None = None


class SuiteSpec(Spec):
    """A suite: a named, versioned list of benchmarks that are ranked together, and the models scored on them.

    It may include other suites, which are scored with it and ranked separately. With a ``hierarchy`` (group → its parent
    group; a benchmark belongs to the group in its field ``parent``) the score is a mean of means.
    """

    benchmarks: tuple[Weighted, ...] = ()
    hierarchy: dict[str, str] = Field(default_factory=dict)
    family: Literal["suite", "parent"] = "suite"
    """Comparisons that are corrected together: all of the suite, or those of the benchmarks of one parent."""
    includes: tuple[Id, ...] = ()
    models: tuple[Id, ...] = ()
    released: str | None = None
    published: tuple[Published, ...] = ()
    notes: tuple[str, ...] = ()

    @field_validator("benchmarks", mode="before")
    @classmethod
    def _bare_ids(cls, value: object) -> object:
        if isinstance(value, (list, tuple)):
            return [{"id": item} if isinstance(item, str) else item for item in value]
        return value

    @model_validator(mode="after")
    def _each_once(self) -> SuiteSpec:
        ids = [item.id for item in self.benchmarks]
        if not ids and not self.includes:
            raise ValueError(
                "a suite needs `benchmarks`, or other suites in `includes`"
            )
        repeated = sorted({id for id in ids if ids.count(id) > 1})
        if repeated:
            raise ValueError(f"listed twice: {', '.join(repeated)}")
        return self

    @field_validator("hierarchy")
    @classmethod
    def _no_circle(cls, value: dict[str, str]) -> dict[str, str]:
        for start in value:
            chain = [start]
            while chain[-1] in value:
                if value[chain[-1]] in chain:
                    raise ValueError(
                        f"runs in a circle: {' → '.join([*chain, value[chain[-1]]])}"
                    )
                chain.append(value[chain[-1]])
        return value


class Ordered(Frozen):
    """Two models of which a claim places one above the other."""

    above: Id
    below: Id

    @model_validator(mode="after")
    def _two(self) -> Ordered:
        if self.above == self.below:
            raise ValueError(f"{self.above!r} cannot be above itself")
        return self


class ClaimSpec(Spec):
    """A claim: in every pair, one model is above the other by at least a margin, on every benchmark.

    Pairs and benchmarks span the multiverse of the claim: a benchmark states metric, splits and ceiling, and models of
    several pairs may differ in the rule that chooses their layers. The margin has the unit of the scores.
    """

    pairs: Annotated[tuple[Ordered, ...], Field(min_length=1)]
    at_least: Annotated[float, Field(ge=0)] = 0.0
    benchmarks: Annotated[tuple[Id, ...], Field(min_length=1)]
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _each_once(self) -> ClaimSpec:
        for name, items in (("benchmarks", self.benchmarks), ("pairs", self.pairs)):
            if len(set(items)) < len(items):
                raise ValueError(f"an entry of `{name}` is listed twice")
        return self


KINDS: dict[str, type[Spec]] = {
    "datasets": DatasetSpec,
    "metrics": MetricSpec,
    "ceilings": CeilingSpec,
    "benchmarks": BenchmarkSpec,
    "models": ModelSpec,
    "suites": SuiteSpec,
    "claims": ClaimSpec,
}
