"""A wrong spec is told apart from a right one with every problem, its place and a near miss."""

import json
from pathlib import Path

import pytest

from neuroledger.errors import RequestError, SpecError
from neuroledger.spec.base import spec_sha256
from neuroledger.spec.catalog import open_catalog
from neuroledger.spec.kinds import KINDS
from neuroledger.spec.load import (
    Params,
    as_list,
    load_document,
    read_params,
    read_spec,
)

METRIC = """# yaml-language-server: $schema=../schema/metric.json
id: {id}
version: 1
title: A metric for tests
compare: {{name: regression, estimator: {{name: ridge}}}}
scale: correlation
"""


def test_a_count_where_values_are_listed_is_not_taken_for_one_value() -> None:
    hints = [as_list(given) for given in (3, 33, "label", True)]
    assert hints[0] == "write [3] for the one value 3, or [0, 1, 2] for 3 values"
    assert hints[1:] == ["write [33]", "write [label]", "write [True]"]


def problems(
    tmp_path: Path, text: str, kind: str = "metrics", id: str = "m"
) -> list[str]:
    path = tmp_path / f"{id}.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as caught:
        read_spec(path, kind, f"{id}.yaml")
    return [str(problem) for problem in caught.value.findings]


def test_all_problems_of_a_file_are_reported_at_once_with_near_misses(
    tmp_path: Path,
) -> None:
    text = (
        METRIC.format(id="m").replace("version: 1", "verson: 1")
        + "direction: hihger\naggregate: [{over: split, with: men}]\n"
    )
    found = problems(tmp_path, text)
    assert any(
        line.startswith(
            "m.yaml:3:1: unknown field 'verson' [spec.unknown-field]\n    hint: did you mean 'version'?"
        )
        for line in found
    )
    assert any("required field 'version' is missing" in line for line in found)
    assert any(
        line.startswith("m.yaml:7:12:") and "did you mean 'higher'" in line
        for line in found
    )
    assert any(
        line.startswith("m.yaml:8:33:") and "aggregate.0.with" in line for line in found
    )


def test_an_id_must_equal_the_file_name(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, METRIC.format(id="other"))
    assert found.startswith("m.yaml:2:5: id 'other' differs from the file name 'm'")


def test_old_booleans_are_explained(tmp_path: Path) -> None:
    text = METRIC.format(id="m") + "splits: {unique: perhaps}\n"
    (found,) = problems(tmp_path, text)
    assert "write true or false" in found


def test_a_number_where_text_is_meant_says_to_quote_it(tmp_path: Path) -> None:
    (found,) = problems(
        tmp_path,
        METRIC.format(id="m").replace("title: A metric for tests", "title: 12345"),
    )
    assert 'quote it: "12345"' in found


def test_a_single_value_in_place_of_a_list_is_refused_with_the_correct_form(
    tmp_path: Path,
) -> None:
    (found,) = problems(tmp_path, METRIC.format(id="m") + "cite: yamins2014\n")
    assert "cite: expected a list" in found and "write [yamins2014]" in found
    (found,) = problems(tmp_path, METRIC.format(id="m") + "cite: {a: b}\n")
    assert "begin each item with a dash" in found


def test_a_file_that_is_not_text_is_one_problem(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="not UTF-8"):
        read_spec(path, "metrics")


def test_unknown_ids_name_their_neighbours(repository: Path) -> None:
    catalog = open_catalog(repository)
    with pytest.raises(RequestError, match="did you mean 'ridge'"):
        catalog.metric("ridg")
    with pytest.raises(RequestError, match="there is a metric of that name"):
        catalog.benchmark("pls_cv")


def test_every_spec_of_the_repository_loads_and_bears_its_file_name(
    repository: Path,
) -> None:
    catalog = open_catalog(repository)
    for kind, id, _ in catalog.files():
        assert catalog.entry(kind, id).spec.id == id


def test_words_that_only_describe_do_not_change_an_identity(repository: Path) -> None:
    metric = open_catalog(repository).metric("pls")
    assert spec_sha256(metric) == spec_sha256(
        metric.model_copy(update={"title": "Another title", "cite": ()})
    )
    assert spec_sha256(metric) != spec_sha256(metric.model_copy(update={"version": 99}))


BARE = {
    "metrics": {"compare": {"name": "pearson"}, "scale": "correlation"},
    "ceilings": {"compare": {"name": "internal_consistency"}, "scale": "correlation"},
    "benchmarks": {
        "dataset": "d", "paradigm": {"name": "neural"}, "metrics": ["m"], "ceiling": None, "parent": "p",
        "controls": {"negative": ["n"], "positive": ["p"]},
    },
    "models": {"builder": {"name": "pixels"}},
}  # fmt: skip
IDENTITIES = {
    "metrics": "c8ee0fb49fa4d91f9e8546bac519c94e7740bdecff9f0fe88782c7e8d49e47ee",
    "ceilings": "8e53dfb8e628d190dff59756561508d9962ffa3f768c09fcbc463435ccc73305",
    "benchmarks": "33b87c11855d7beacd2994dc67242b60ebaa4920cf7e3264964333d5972ceaaf",
    "models": "3b85e84e07786199fbf692050f81dc0587be0c97e51963b031e927c59bbb1365",
}


@pytest.mark.parametrize("kind", BARE)
def test_a_language_that_gains_a_field_leaves_the_identity_of_specs_that_do_not_state_it(
    kind: str,
) -> None:
    """Otherwise every record is out of date: where nobody states a new field, its dump leaves it out (``exclude_if``)."""
    spec = KINDS[kind].model_validate(
        {"id": "bare", "version": 1, "title": "A bare one"} | BARE[kind]
    )
    assert spec_sha256(spec) == IDENTITIES[kind]


def test_a_field_that_came_later_counts_where_it_is_stated() -> None:
    bare = {"id": "bare", "version": 1, "title": "A bare one"} | BARE["models"]
    one, other = (
        KINDS["models"].model_validate(bare | {"logits": layer})
        for layer in ("fc", "head")
    )
    assert len({IDENTITIES["models"], spec_sha256(one), spec_sha256(other)}) == 3


def test_every_kind_has_a_schema_line_that_names_an_existing_schema(
    repository: Path,
) -> None:
    for kind in KINDS:
        assert (repository / "specs" / "schema" / f"{kind[:-1]}.json").is_file()


def test_a_byte_order_mark_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(METRIC.format(id="m"), encoding="utf-8-sig")
    spec, _ = read_spec(tmp_path / "m.yaml", "metrics")
    assert spec.id == "m"


def test_a_file_name_that_can_be_no_id_is_not_offered_as_one(tmp_path: Path) -> None:
    (found,) = problems(tmp_path, METRIC.format(id="other"), id="my metric")
    assert found.endswith("hint: rename the file to other.yaml")


DATASET = """id: d
version: 1
title: Data for tests
license: CC0-1.0
files: {{x.nc: {{url: "{url}", size: 3, sha256: {sha256}}}}}
reader: {{name: netcdf}}
expectations: {{assembly: [{{check: {check}}}]}}
"""


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"sha256": "A" * 64},
            "is not a SHA-256: 64 of the characters 0-9 and a-f, in lower case",
        ),
        (
            {"url": "ftp://example.org/x"},
            "'ftp://example.org/x' is not an address: https://",
        ),
        ({"check": "alligned"}, "did you mean 'aligned'?"),
        ({"check": "nothing_like_it"}, "hint: known: unique, unique_together"),
    ],
)
def test_texts_of_the_wrong_form_are_refused_with_the_right_one(
    tmp_path: Path, change: dict[str, str], says: str
) -> None:
    right = {"sha256": "a" * 64, "url": "https://example.org/x", "check": "aligned"}
    (found,) = problems(
        tmp_path, DATASET.format(**{**right, **change}), "datasets", "d"
    )
    assert says in found


def test_every_pattern_that_has_words_is_one_of_a_spec_or_a_component() -> None:
    from neuroledger.engine.check import schema_texts
    from neuroledger.spec.base import PATTERNS

    schemas = "".join(schema_texts(plugins=False).values())
    assert [pattern for pattern in PATTERNS if json.dumps(pattern) not in schemas] == []


def test_a_missing_file_is_reported_by_the_name_that_is_shown(tmp_path: Path) -> None:
    with pytest.raises(
        SpecError, match=r"^specs/m\.yaml.*cannot be read: No such file or directory"
    ):
        load_document(tmp_path / "m.yaml", "specs/m.yaml")
    with pytest.raises(
        SpecError,
        match=f"^{tmp_path}/m.yaml.*cannot be read: No such file or directory",
    ):
        load_document(tmp_path / "m.yaml")


@pytest.mark.parametrize("text", ["- a\n", "word\n"])
def test_a_spec_is_a_mapping(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text) == [
        "m.yaml:1:1: a metric spec is a mapping of fields [spec.value]"
    ]


def test_settings_have_defaults_and_are_validated(tmp_path: Path) -> None:
    assert read_params(tmp_path) == Params(
        suite="core", models=(), seed=0, device="cpu"
    )
    path = tmp_path / "params.yaml"
    path.write_text("suite: lab\nmodels: [a, b]\nseed: 3\n")
    assert read_params(tmp_path) == Params(suite="lab", models=("a", "b"), seed=3)
    path.write_text("suite: lab\nsed: 3\nseed: -1\n")
    with pytest.raises(SpecError) as caught:
        read_params(tmp_path)
    first, second = caught.value.findings
    assert (first.where, first.line, first.column) == ("params.yaml", 2, 1)
    assert "unknown field 'sed'" in first.what and first.fix == "did you mean 'seed'?"
    assert (second.line, second.column) == (3, 7) and second.what.startswith("seed: ")
