"""Stimuli keep their visual angle on a model's screen; the geometry is the peer's."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from neuroledger.data import screen
from neuroledger.data.images import decode
from neuroledger.data.screen import (
    place,
    place_image,
    placement,
    shown,
    shown_as,
    spanning,
)
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import DataError, RequestError
from tests.models.drawn_stimuli import drawn

GOLDEN = Path(__file__).parents[1] / "golden" / "screen.json"


def cases(table: list[dict[str, object]]) -> None:
    for row in table:
        width, height = row["size"]  # type: ignore[misc]
        white = Image.new("RGB", (width, height), (255, 255, 255))
        placed = np.asarray(place_image(white, row["source"], row["target"]))  # type: ignore[arg-type]
        assert list(placed.shape[1::-1]) == row["out_size"], row
        left, top, right, bottom = row["content_box_xyxy"]  # type: ignore[misc]
        inside = np.zeros(placed.shape[:2], dtype=bool)
        inside[top:bottom, left:right] = True
        assert (placed[inside] == 255).all(), row
        if row["background"] is None:
            assert inside.all(), row
        else:
            assert (placed[~inside] == row["background"]).all(), row


def test_geometry_is_the_peers() -> None:
    """``screen.json`` holds what Brain-Score's own place_on_screen gave for 30 sizes and angles."""
    table = json.loads(GOLDEN.read_text())
    assert len(table) == 30
    cases(table)


def test_geometry_is_that_of_the_reference(reference: Path) -> None:
    cases(
        json.loads((reference / "brainscore_oracle" / "helpers.json").read_text())[
            "screen"
        ]
    )


@given(
    st.integers(1, 300),
    st.integers(1, 300),
    st.floats(0.5, 30, allow_nan=False),
    st.floats(0.5, 30, allow_nan=False),
)
def test_angle_per_pixel_is_kept_and_the_image_stays_centred(
    w: int, h: int, source: float, target: float
) -> None:
    where = placement((w, h), source, target)
    for side, size in zip(where.size, (w, h), strict=True):
        assert abs(side - size * target / source) <= 0.5 + 1e-9  # of rounding
    left, top, right, bottom = where.box
    outer = where.size if where.padded else (w, h)
    assert abs(left - (outer[0] - right)) <= 1
    assert abs(top - (outer[1] - bottom)) <= 1


def test_a_smaller_screen_shows_the_centre() -> None:
    values = np.arange(100, dtype=np.uint8).reshape(10, 10)
    placed = place_image(Image.fromarray(values).convert("RGB"), 10, 4)
    assert (np.asarray(placed)[..., 0] == values[3:7, 3:7]).all()


def test_equal_angles_leave_the_set_unchanged() -> None:
    stimuli = drawn(2, degrees=8.0)
    assert place(stimuli, 8) is stimuli
    assert place(stimuli, None) is stimuli


def test_placed_sets_give_placed_files_and_have_another_identity() -> None:
    stimuli = drawn(3, size=(20, 10), degrees=4.0)
    placed = place(stimuli, 8)
    assert placed.content_sha256 != stimuli.content_sha256
    assert placed.content_sha256 != place(stimuli, 9).content_sha256
    images = list(shown(placed, placed.ids))
    assert {image.size for image in images} == {(40, 20)}
    assert (
        np.asarray(decode(placed.bytes("s001"), "s001")) == np.asarray(images[1])
    ).all()
    assert (
        np.asarray(images[1])[5:15, 10:30]
        == np.asarray(decode(stimuli.bytes("s001"), "s001"))
    ).all()
    assert placed.select(["s002"]).ids == ["s002"]
    assert next(shown(placed.select(["s002"]), ["s002"])).size == (40, 20)


def test_degrees_may_differ_between_stimuli() -> None:
    stimuli = drawn(2, size=(8, 8), columns={"degrees": [4.0, 8.0]})
    placed = place(stimuli, 8)
    assert [image.size for image in shown(placed, placed.ids)] == [(16, 16), (8, 8)]


def test_unknown_or_doubly_declared_degrees_are_refused() -> None:
    with pytest.raises(RequestError, match="does not state how many degrees"):
        place(drawn(1), 8)
    with pytest.raises(RequestError, match="for the whole set and per stimulus"):
        place(drawn(1, degrees=4.0, columns={"degrees": [4.0]}), 8)
    with pytest.raises(RequestError, match="positive"):
        place(drawn(1, degrees=4.0), -1)
    with pytest.raises(RequestError, match="on a screen already"):
        place(place(drawn(1, degrees=4.0), 8), 9)


@pytest.mark.parametrize("degrees", [0.0, -2.0, float("nan"), "wide"])
def test_degrees_of_a_stimulus_are_positive_numbers(degrees: object) -> None:
    with pytest.raises(DataError, match="`degrees` of 's001' is not a positive number"):
        place(drawn(2, columns={"degrees": [4.0, degrees]}), 8)


def test_screens_that_show_nothing_or_are_absurdly_large_are_refused() -> None:
    with pytest.raises(
        DataError,
        match="'s000', 16 x 16 pixels for 80 degrees, has no pixels on a screen of 2",
    ):
        list(shown(place(drawn(1, degrees=80.0), 2), ["s000"]))
    with pytest.raises(
        DataError,
        match="needs a screen of 12800 x 12800 pixels for 8 degrees, the limit",
    ):
        list(shown(place(drawn(1, degrees=0.01), 8), ["s000"]))


def test_degrees_of_set_and_benchmark_must_agree() -> None:
    assert spanning(drawn(1), 8).degrees == 8
    assert spanning(drawn(1, degrees=8.0), 8).degrees == 8
    assert spanning(drawn(1, degrees=8.0), None).degrees == 8
    assert spanning(drawn(1, columns={"degrees": [4.0]}), 8).degrees is None
    with pytest.raises(
        RequestError,
        match="spans 8 degrees, the benchmark states 4: correct one of them",
    ):
        spanning(drawn(1, degrees=8.0), 4)


@pytest.mark.parametrize(("source", "target"), [(0, 8), (8, 0), (-8, 8), (8, -8)])
def test_visual_angles_are_positive(source: float, target: float) -> None:
    with pytest.raises(
        ValueError,
        match=f"^visual degrees must be positive, got {source} and {target}$",
    ):
        placement((4, 4), source, target)


def test_the_box_is_centred_on_larger_equal_and_smaller_screens() -> None:
    assert placement((4, 6), 4, 8) == ((8, 12), (2, 3, 6, 9), True)
    assert placement((5, 3), 8, 8) == ((5, 3), (0, 0, 5, 3), True)
    assert placement((8, 12), 8, 4) == ((4, 6), (2, 3, 6, 9), False)


def test_stimuli_that_need_no_placement_are_returned_unchanged() -> None:
    drawing = drawn(1, degrees=4.0)
    words = StimulusSet("s", pd.DataFrame({"stimulus_id": ["a"]}))
    as_is = spanning(drawn(1), None, "as_is")
    assert place(drawing, None) is drawing and place(drawing, 4) is drawing
    assert place(words, 8) is words
    assert as_is.as_is and place(as_is, 8) is as_is
    with pytest.raises(
        RequestError,
        match=r"^`screen: as_is` places no stimulus: remove `visual_degrees`$",
    ):
        spanning(drawn(1), 8, "as_is")


def test_a_set_is_placed_once_on_a_positive_screen() -> None:
    placed = place(drawn(1, degrees=4.0), 8)
    with pytest.raises(RequestError, match=r"is on a screen already$"):
        place(placed, 16)
    for degrees in (0, -1):
        with pytest.raises(
            RequestError,
            match=f"^the model's screen has {degrees} degrees: visual degrees must be positive$",
        ):
            place(drawn(1, degrees=4.0), degrees)


def test_the_number_of_stimuli_with_invalid_degrees_is_reported() -> None:
    for degrees, suffix in (
        ([0.0, 4.0, 4.0], ""),
        ([0.0, -1.0, float("inf")], ", nor of 2 more"),
    ):
        with pytest.raises(DataError) as caught:
            place(drawn(3, columns={"degrees": degrees}), 8)
        assert str(caught.value) == (
            f"stimulus set 'drawn': `degrees` of 's000' is not a positive number{suffix}"
        )


def test_the_largest_screen_is_allowed_and_one_pixel_more_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(screen, "MAX_PIXELS", 16 * 24)
    screen.check_size((8, 12), "x", 4, 8)
    monkeypatch.setattr(screen, "MAX_PIXELS", 16 * 24 - 1)
    with pytest.raises(DataError) as caught:
        screen.check_size((8, 12), "x", 4, 8)
    assert str(caught.value) == (
        "image of 'x', 8 x 12 pixels for 4 degrees, needs a screen of 16 x 24 pixels for 8 degrees, "
        "the limit is 383: check the degrees"
    )
    with pytest.raises(DataError) as caught:
        screen.check_size((8, 12), "x", 80, 2)
    assert str(caught.value) == (
        "image of 'x', 8 x 12 pixels for 80 degrees, has no pixels on a screen of 2 degrees: check the degrees"
    )


class _Immediate:
    """An executor that computes at once, so that the number of computed images is known."""

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*arguments))
        return future


@pytest.mark.parametrize("ahead", [1, 2, 4, 9])
def test_images_come_in_order_and_at_most_so_many_ahead(
    ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stimuli, computed = drawn(5, size=(4, 4)), list[bytes]()

    def make(image: Image.Image) -> bytes:
        computed.append(image.tobytes())
        return image.tobytes()

    monkeypatch.setattr(screen, "pool", _Immediate)
    images = shown_as(stimuli, stimuli.ids, make, ahead=ahead)
    results = [next(images)]
    assert len(computed) == min(ahead, 5)
    results += images
    assert (
        results
        == computed
        == [image.tobytes() for image in shown(stimuli, stimuli.ids)]
    )


def test_a_screen_may_be_smaller_than_one_degree() -> None:
    placed = place(drawn(1, size=(8, 8), degrees=4.0), 0.5)
    assert [image.size for image in shown(placed, placed.ids)] == [(1, 1)]


def test_one_further_stimulus_with_invalid_degrees_is_reported() -> None:
    with pytest.raises(
        DataError, match=r"`degrees` of 's001' is not a positive number, nor of 1 more$"
    ):
        place(drawn(3, columns={"degrees": [4.0, 0.0, float("nan")]}), 8)


@pytest.mark.parametrize("ahead", [1, 3])
def test_a_damaged_image_is_reported_by_the_name_of_its_stimulus(ahead: int) -> None:
    table = pd.DataFrame({"stimulus_id": ["a", "b"], "filename": ["1", "2"]})
    intact = drawn(1).bytes("s000")
    stimuli = StimulusSet("s", table, contents={"1": intact, "2": b"no image"})
    images = shown_as(stimuli, ["a", "b"], lambda image: image.size, ahead=ahead)
    with pytest.raises(DataError, match=r"^'b' is not an image"):
        list(images)


def test_one_image_ahead_needs_no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "pool", lambda: pytest.fail("a thread was started"))
    assert [image.size for image in shown(drawn(2, size=(4, 4)), ["s001", "s000"])] == [
        (4, 4)
    ] * 2
