"""Rules that choose layers: their syntax, the stimuli that they may use, and problems that specs alone show."""

from __future__ import annotations

import hashlib
import io
from types import SimpleNamespace
from typing import Any

import pytest
import xarray as xr
from PIL import Image

from neuroledger.engine.layer_commitment import (
    Rule,
    _content,
    _contents,
    are_disjoint,
    commitment_problems,
    committed,
    may_share,
    rule_of,
    scored_on,
)
from neuroledger.errors import ModelError, RequestError
from neuroledger.models.model import LayeredModel
from neuroledger.spec.kinds import ModelSpec
from neuroledger.stats.score import Score


def model_spec(**fields: Any) -> ModelSpec:
    known = {
        "id": "net",
        "version": 1,
        "title": "A model",
        "builder": {"name": "small_cnn"},
    }
    return ModelSpec.model_validate(known | fields)


def benchmark(id: str, dataset: str = "lab", **select: Any) -> Any:
    paradigm = SimpleNamespace(parameters={"region": "V4"})
    return SimpleNamespace(id=id, dataset=dataset, select=select, paradigm=paradigm)


class Shelf:
    """A catalogue of benchmarks, data sets with pins, and suites."""

    def __init__(
        self,
        *benchmarks: Any,
        suites: dict[str, Any] | None = None,
        **files: dict[str, str],
    ) -> None:
        self._benchmarks = {item.id: item for item in benchmarks}
        self._suites = suites or {}
        self._files = files
        self.benchmark = self._benchmarks.__getitem__
        self.suite = self._suites.__getitem__

    def dataset(self, id: str) -> Any:
        pins = {
            name: SimpleNamespace(sha256=text)
            for name, text in self._files.get(id, {}).items()
        }
        return SimpleNamespace(id=id, files=pins, members=())

    def ids(self, kind: str) -> list[str]:
        return sorted(self._benchmarks if kind == "benchmarks" else self._suites)


def test_a_rule_is_read_from_the_spec_of_a_model() -> None:
    assert rule_of(model_spec()) is None
    full = rule_of(model_spec(commit={"on": {"V4": "lab.b"}, "layers": ["one", "two"]}))
    assert full == Rule(on={"V4": "lab.b"}, layers=("one", "two"))
    assert rule_of(model_spec(commit={"on": {"V4": "lab.b"}})) == Rule(
        on={"V4": "lab.b"}, layers=()
    )
    words = r"^model 'net': commit must be \{on: \{<region>: <benchmark>\}, layers: \[<layer>, …\]\}; "
    for commit, place in (
        ({"on": {}}, "on: "), ({"layers": []}, "on: "), ({"on": {"V4": 3}}, r"on\.V4: "),
        ({"on": {"V4": "b"}, "by": 1}, "by: "),
    ):  # fmt: skip
        with pytest.raises(RequestError, match=words + place):
            rule_of(model_spec(commit=commit))


LAYERS = ("one", "two", "three")


def layered(**regions: str) -> LayeredModel:
    return LayeredModel(
        id="net",
        takes=frozenset({"images"}),
        extract=lambda *_: {},
        layers=LAYERS,
        regions=regions,
    )


class Choice:
    """A session in which a layer is chosen on benchmark ``other`` for a score on benchmark ``scored``."""

    def __init__(self, **values: float) -> None:
        self.stimuli = {"scored": ["a", "b"], "other": ["c", "d"], "third": ["e"]}
        catalog: Any = SimpleNamespace(benchmark=lambda id: benchmark(id, id))
        self.session: Any = SimpleNamespace(catalog=catalog, layers={}, shown={})
        self.values = values
        self.scored: list[tuple[str, Any]] = []
        self.loaded: list[str] = []

    def load(self, spec: Any) -> Any:
        self.loaded.append(spec.id)
        return self.data(spec.id)

    def data(self, id: str) -> Any:
        stimuli = SimpleNamespace(
            ids=self.stimuli[id],
            archive=None,
            contents={},
            read=lambda ids: [name.encode() for name in ids],
        )
        return SimpleNamespace(stimuli=stimuli, assembly=None)

    def score(self, spec: Any, model: LayeredModel) -> Score:
        self.scored.append((spec.id, dict(model.regions)))
        return Score(self.values[model.committed("V4")[0]])

    def committed(self, model: Any, **rule: Any) -> Any:
        given: Any = (
            self.session,
            model,
            Rule(**rule),
            benchmark("scored"),
            self.data("scored"),
        )
        return committed(*given, self.load, self.score)


def test_the_best_layer_is_chosen_once_on_other_stimuli_and_other_regions_stay() -> (
    None
):
    choice = Choice(one=0.1, two=0.7, three=0.7)
    for _ in range(2):
        model = choice.committed(layered(IT="three"), on={"V4": "other"})
        assert dict(model.regions) == {"IT": "three", "V4": "two"}, (
            "the first of equal layers"
        )
    assert choice.scored == [("other", {"V4": layer}) for layer in LAYERS]
    assert choice.loaded == ["other"] and choice.session.layers == {
        ("net", "V4"): "two"
    }
    few = Choice(one=0.8, two=0.7, three=0.9).committed(
        layered(), on={"V4": "other"}, layers=("two", "one")
    )
    assert dict(few.regions) == {"V4": "one"}


def test_each_region_has_its_own_benchmark() -> None:
    choice = Choice(one=0.1, two=0.7, three=0.2)
    model = choice.committed(layered(), on={"V4": "other", "IT": "third"})
    assert dict(model.regions) == {"V4": "two", "IT": "two"} and choice.loaded == [
        "other",
        "third",
    ]


def test_a_choice_on_a_single_scored_stimulus_is_refused() -> None:
    choice = Choice(one=0.1, two=0.7, three=0.2)
    choice.stimuli["other"] = ["b", "c"]
    words = (
        "^model 'net' chooses its layer of V4 on 'other', which shares 1 stimuli with 'scored', so the score would not be "
        r"independent; choose it on other stimuli$"
    )
    with pytest.raises(RequestError, match=words):
        choice.committed(layered(), on={"V4": "other"})
    assert choice.scored == []
    with pytest.raises(
        ModelError,
        match=r"^model 'flat' has no layers to choose from; remove `commit`$",
    ):
        choice.committed(SimpleNamespace(id="flat"), on={"V4": "other"})


def test_stimuli_are_compared_by_content_or_by_id_where_they_have_no_files() -> None:
    def read(ids: list[str]) -> list[bytes]:
        return [id.upper().encode() for id in ids]

    spec = benchmark("b", "data")
    stimuli = SimpleNamespace(
        ids=["a", "b"], archive="stimuli.zip", contents=None, read=read
    )
    digests = [hashlib.sha256(text).hexdigest() for text in (b"A", b"B")]
    assert _contents(
        SimpleNamespace(stimuli=stimuli, assembly=None), spec
    ) == frozenset(digests)  # type: ignore[arg-type]
    shown = xr.DataArray(
        [1.0, 2.0],
        dims="presentation",
        coords={"stimulus_id": ("presentation", ["b", "b"])},
    )
    assert _contents(
        SimpleNamespace(stimuli=stimuli, assembly=shown), spec
    ) == frozenset(digests[1:])  # type: ignore[arg-type]
    stimuli.archive = None
    for item, ids in ((stimuli, {"data:b"}), (None, {"data:b"})):
        assert _contents(SimpleNamespace(stimuli=item, assembly=shown), spec) == ids  # type: ignore[arg-type]
    assert _contents(SimpleNamespace(stimuli=None, assembly=None), spec) == frozenset()  # type: ignore[arg-type]
    bare = shown.drop_vars("stimulus_id")
    assert _contents(SimpleNamespace(stimuli=stimuli, assembly=bare), spec) == {
        "data:a",
        "data:b",
    }  # type: ignore[arg-type]


def test_the_content_of_an_image_is_its_pixels_and_its_shape() -> None:
    def stored(size: tuple[int, int], kind: str, value: int = 7) -> bytes:
        file = io.BytesIO()
        Image.new("RGB", size, (value, 8, 9)).save(file, kind)
        return file.getvalue()

    assert _content(stored((4, 2), "PNG")) == _content(stored((4, 2), "BMP"))
    contents = {
        _content(stored((4, 2), "PNG")),
        _content(stored((2, 4), "PNG")),
        _content(stored((4, 2), "PNG", 6)),
    }
    assert len(contents) == 3
    assert _content(b"text") == hashlib.sha256(b"text").hexdigest()


@pytest.mark.parametrize(
    ("first", "second", "disjoint"),
    [
        ("a", "b", True), ("a", "a", False), (["a", "b"], "b", False), (["a", "b"], ["c"], True),
        (["a", "b"], ["b", "c"], False), ({"below": 3}, "a", False), ("a", {"below": 3}, False),
    ],
)  # fmt: skip
def test_selections_are_disjoint_only_where_values_are_listed(
    first: Any, second: Any, disjoint: bool
) -> None:
    assert are_disjoint(first, second) is disjoint


def test_benchmarks_may_share_stimuli_unless_their_selections_or_files_exclude_it() -> (
    None
):
    even, odd, all_of = (
        benchmark("even", half="even"),
        benchmark("odd", half="odd"),
        benchmark("all"),
    )
    files = {"stimuli.zip": "1", "stimuli.csv": "2"}
    catalog: Any = Shelf(
        lab=files,
        copy={"images.zip": "1"},
        table={"stimuli.csv": "2", "a.tsv": "3"},
        none={"x.zip": "9"},
    )
    assert may_share(catalog, even, even) and may_share(catalog, even, all_of)
    assert not may_share(catalog, even, odd)
    regions = benchmark("V4", region="V4"), benchmark("IT", region="IT")
    assert may_share(catalog, *regions), "a region selects neuroids, not stimuli"
    assert not may_share(
        catalog,
        benchmark("a", region="V4", half="even"),
        benchmark("b", region="IT", half="odd"),
    )
    assert may_share(catalog, even, benchmark("c", "copy"))
    assert not may_share(catalog, even, benchmark("t", "table")), (
        "equal tables may list other images"
    )
    assert not may_share(catalog, even, benchmark("n", "none"))


def test_a_model_is_scored_on_its_own_benchmarks_and_those_of_its_suites() -> None:
    items = [SimpleNamespace(id=id) for id in ("b", "c", "lost")]
    suites = {
        "with": SimpleNamespace(models=("net",), benchmarks=items),
        "without": SimpleNamespace(
            models=("other",), benchmarks=[SimpleNamespace(id="d")]
        ),
    }
    catalog: Any = Shelf(*map(benchmark, "abcd"), suites=suites)
    assert scored_on(catalog, model_spec(benchmarks=["a", "b", "V4"])) == [
        "a",
        "b",
        "c",
    ]
    assert scored_on(catalog, model_spec()) == ["b", "c"]


def test_problems_of_a_rule_have_a_place_and_a_hint() -> None:
    catalog: Any = Shelf(
        benchmark("lab.even", half="even"),
        benchmark("lab.odd", half="odd"),
        benchmark("lab.all"),
    )

    def problems(**fields: Any) -> list[Any]:
        return list(commitment_problems(catalog, model_spec(**fields)))

    assert problems() == []
    assert problems(commit={"on": {"V4": "lab.even"}}, benchmarks=["lab.odd"]) == []
    words = "the layer of V4 is chosen on stimuli of 'lab.all', on which the model is scored"
    hint = "choose on another data set, or on a disjoint `select` of this one"
    assert problems(
        commit={"on": {"V4": "lab.even"}}, benchmarks=["lab.odd", "lab.all"]
    ) == [(("commit", "on", "V4"), words, hint)]
    place, words, hint = problems(commit={"on": {"V4": "lab.evne"}})[0]
    assert (
        place == ("commit", "on", "V4")
        and hint == "name a benchmark of this repository"
    )
    assert words.startswith("no benchmark 'lab.evne'") and "lab.even" in words
    both = problems(
        commit={"on": {"V4": "lab.evne", "IT": "lab.all"}}, benchmarks=["lab.all"]
    )
    assert [item[0] for item in both] == [
        ("commit", "on", "V4"),
        ("commit", "on", "IT"),
    ]
    [(place, words, hint)] = problems(
        commit={"on": {"V4": "lab.even"}, "layers": ["one", "tow"]},
        layers=["one", "two"],
    )
    assert (place, hint) == (
        ("commit", "layers"),
        "name one of `layers`",
    ) and words.startswith("no layer 'tow'")
    assert problems(commit={"on": {"V4": "lab.even"}, "layers": ["tow"]}) == [], (
        "the builder knows its layers"
    )
    [(place, words, hint)] = problems(commit={"by": "hand"})
    assert (place, hint) == (("commit",), "see docs/models.md") and words.startswith(
        "model 'net': commit must be"
    )
