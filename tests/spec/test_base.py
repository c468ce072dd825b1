"""Messages of the validator in plain words, names of files and ids."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
)

from neuroledger.spec import base
from neuroledger.spec.base import worded


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class A(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    kind: Literal["a"]


class B(A):
    kind: Literal["b"]  # type: ignore[assignment]


def refuse(value: Any) -> Any:
    raise ValueError("it is not what we want")


Tagged = Annotated[A | B, Field(discriminator="kind")]


@pytest.mark.parametrize(
    ("type_", "given", "words"),
    [
        (A, {"kind": "a", "more": 1}, "there is no such field"),
        (A, {}, "it is missing"),
        (Annotated[int, Field(gt=3)], 3, "3 is not greater than 3"),
        (Annotated[int, Field(ge=3)], 2, "2 is not greater than or equal to 3"),
        (Annotated[float, Field(lt=0.5)], 0.5, "0.5 is not less than 0.5"),
        (Annotated[float, Field(le=0.5)], 1.5, "1.5 is not less than or equal to 0.5"),
        (Tagged, {"kind": "c"}, "there is no kind 'c'; known are a, b"),
        (Tagged, {}, "the field kind is missing"),
        (Literal["a", "b", "c"], "d", "'d' is not one of 'a', 'b', 'c'"),
        (Literal["a", "b"], [1], "the value is not one of 'a', 'b'"),
        (Colour, "green", "'green' is not one of 'red', 'blue'"),
        (str, 3, "expected text"),
        (int, "x", "expected a whole number"),
        (int, 1.5, "expected a whole number"),
        (float, "x", "expected a number"),
        (
            Annotated[float, Field(allow_inf_nan=False)],
            float("inf"),
            "expected a finite number",
        ),
        (bool, "perhaps", "expected true or false"),
        (dict[str, int], 3, "expected a mapping of fields"),
        (A, 3, "expected a mapping of fields"),
        (tuple[int, ...], 3, "expected a list"),
        (list[int], "x", "expected a list"),
        (set[int], 3, "expected a list"),
        (Annotated[int, AfterValidator(refuse)], 3, "it is not what we want"),
        (
            Annotated[str, Field(min_length=2)],
            "x",
            "String should have at least 2 characters",
        ),
    ],
)
def test_each_kind_of_error_has_its_words(type_: Any, given: Any, words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(type_).validate_python(given)
    (item,) = caught.value.errors(include_url=False)
    assert worded(item) == words
    assert (
        worded({"type": "url", "msg": "Input should be an address", "input": 1})
        == "it is not an address"
    )


def test_a_long_list_of_known_values_is_omitted() -> None:
    def said(count: int) -> str:
        tags = ", ".join(f"'t{i}'" for i in range(count))
        context = {"discriminator": "'check'", "tag": "x", "expected_tags": tags}
        return worded(
            {"type": "union_tag_invalid", "ctx": context, "input": {}, "msg": ""}
        )

    assert said(12).endswith("known are " + ", ".join(f"t{i}" for i in range(12)))
    assert said(13) == "there is no check 'x'"


def test_names_of_pinned_files_are_plain_relative_and_obeyed_by_nothing() -> None:
    honest = (
        "a.nc",
        "sub-01/eeg/a_b+c-1.fif",
        "_a",
        "meg.ds/cleanup_bids.sh",
        "processing.cfg",
        "com.csv",
        "net.whl",
        "README",
    )
    for name in honest:
        assert base.is_file_name(name)
    for name in (
        "",
        "a b",
        "/a",
        "../a",
        "a/",
        ".hidden",
        "dvc.yaml",
        "x/DVC.lock",
        "a.nc.dvc",
        "dvc.yaml/a",
        "__init__.py",
        "x/ConfTest.PY",
        "a.cpython-311-x86_64-linux-gnu.so",
        "libx.so.1",
        "a.pyd",
        "Makefile",
        "pyproject.toml",
        "setup.cfg",
        "pytest.ini",
        "HEAD",
        "git.bat",
        "con.csv",
        "a.",
    ):
        assert not base.is_file_name(name)


def test_wildcards_make_a_pattern() -> None:
    assert (
        base.is_pattern("*.wav")
        and base.is_pattern("a?.wav")
        and not base.is_pattern("a.wav")
    )


def test_the_id_of_a_metric_is_the_same_with_and_without_overrides() -> None:
    assert (
        base.id_of("pls")
        == "pls"
        == base.id_of(base.Override.model_validate({"name": "pls", "folds": 5}))
    )
