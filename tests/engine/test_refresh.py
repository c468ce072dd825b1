"""Intervals follow a new method without data, and nothing else of a record changes."""

from __future__ import annotations

import base64
import copy
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.cli import main
from neuroledger.display import NoDisplay
from neuroledger.engine.checked import Evidence
from neuroledger.engine.plan import plan
from neuroledger.engine.record import (
    Record,
    payload_of,
    read_record,
    record_of,
    record_path,
    write_record,
)
from neuroledger.engine.records.evidence import signature_path
from neuroledger.engine.records.refresh import refresh, refreshed
from neuroledger.engine.run import current, run
from neuroledger.engine.session import Request
from neuroledger.engine.verify import verify
from neuroledger.errors import Finding, RequestError
from neuroledger.stats import uncertainty as inference
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from tests.engine.lab import Lab
from tests.report.ledger import record, with_score
from tests.varying import of_items

RIDGE = "lab.V4-ridge"
WHERE = "results/records/lab.V4-ridge/pixels4.json"
QUANTILE = inference.quantile


def score_all(lab: Lab, **options: Any) -> Record:
    jobs = plan(
        lab.open(), benchmarks=[RIDGE], models=["pixels4"], request=Request()
    ).jobs
    run(lab.open(), jobs, Request(), NoDisplay(), **options)
    return read_record(record_path(lab.root, RIDGE, "pixels4"))


@pytest.fixture(scope="module")
def once(_validated: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The laboratory after one score of two metrics, for copies only."""
    created = Lab(
        shutil.copytree(_validated, tmp_path_factory.mktemp("scored") / "lab")
    )
    created.benchmark(RIDGE, metric=None, metrics=["ridge", "rdm"])
    score_all(created)
    return created.root


@pytest.fixture
def lab(once: Path, tmp_path: Path) -> Lab:
    return Lab(shutil.copytree(once, tmp_path / "lab"))


@pytest.fixture
def path(lab: Lab) -> Path:
    return record_path(lab.root, RIDGE, "pixels4")


def another_method(monkeypatch: pytest.MonkeyPatch, version: int = 2) -> None:
    """Intervals become half as long again."""
    monkeypatch.setattr(
        inference, "quantile", lambda level, degrees: 1.5 * QUANTILE(level, degrees)
    )
    monkeypatch.setattr(inference, "VERSION", version)


def done(lab: Lab, *paths: Path) -> Finding:
    (finding,) = refresh(lab.open(), paths)
    return finding


def test_a_new_method_changes_intervals_and_neither_identity_nor_value(
    lab: Lab, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = read_record(path)
    another_method(monkeypatch)
    shutil.rmtree(lab.data)
    assert done(lab).code == "record.refreshed"
    new = read_record(path)
    assert new.intact and (new.id, new.inputs, new.controls) == (
        old.id,
        old.inputs,
        old.controls,
    )
    assert (new.environment, new.timing) == (old.environment, old.timing)
    assert old.score is not None and new.score is not None
    pairs = [
        (old.score, new.score),
        *((old.scores[name], new.scores[name]) for name in ("ridge", "rdm")),
    ]
    pairs.append((old.score.ceiling, new.score.ceiling))
    for was, now in pairs:
        assert now.low < was.low < was.value == now.value < was.high < now.high
        changes = {"version": 2} | ({"controls": 1} if now is new.score else {})
        assert now.uncertainty == was.uncertainty.model_copy(update=changes), (
            "the deviations stay"
        )
        changed = {"low", "high", "uncertainty", "ceiling"}
        assert was.model_dump(exclude=changed) == now.model_dump(exclude=changed)
    headline = new.scores["ridge"]
    assert (new.score.low, new.score.ceiling) == (headline.low, headline.ceiling)


def test_the_interval_is_that_of_a_new_computation(
    lab: Lab, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another_method(monkeypatch)
    done(lab)
    kept = read_record(path)
    again = score_all(lab, force=True)
    for was, now in (
        (kept.score, again.score),
        (kept.scores["rdm"], again.scores["rdm"]),
    ):
        assert was is not None and now is not None
        for one, other in ((was, now), (was.ceiling, now.ceiling)):
            if one is not None and other is not None:
                assert one.low == pytest.approx(other.low, rel=1e-9)
                assert one.high == pytest.approx(other.high, rel=1e-9)
    assert kept.id == again.id


def test_current_intervals_keep_their_bytes(
    lab: Lab, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()
    assert done(lab).code == "record.interval-current" and path.read_bytes() == before
    another_method(monkeypatch)
    assert done(lab).code == "record.refreshed"
    changed = path.read_bytes()
    assert changed != before
    assert done(lab).code == "record.interval-current" and path.read_bytes() == changed


def test_a_record_of_an_earlier_version_is_up_to_date(
    lab: Lab, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another_method(monkeypatch)
    before = path.read_bytes()
    catalog = lab.open()
    planned = plan(catalog, benchmarks=[RIDGE], models=["pixels4"], request=Request())
    (job,) = planned.jobs
    assert job in current(catalog, [job], Request(), retry_failed=False), (
        "there is nothing to do"
    )
    (item,) = run(catalog, planned.jobs, Request(), NoDisplay())
    assert not item.computed and path.read_bytes() == before
    (result,) = verify(catalog, [path], recompute=False, display=NoDisplay())
    assert (
        result.finding.code == "record.current"
        and result.finding.fix == "`neuroledger refresh`"
    )
    (result,) = verify(catalog, [path], recompute=True, display=NoDisplay())
    assert result.finding.code == "record.not-checked"
    assert (
        "not checked: its interval is of version 1, the current one is version 2"
        in result.finding.what
    )


def test_of_a_refreshed_record_all_but_the_intervals_of_its_controls_is_reproduced(
    lab: Lab, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another_method(monkeypatch)
    done(lab)

    def recomputed() -> Finding:
        (result,) = verify(lab.open(), [path], recompute=True, display=NoDisplay())
        assert (
            result.evidence == Evidence() or result.finding.code == "record.reproduced"
        )
        return result.finding

    finding = recomputed()
    assert finding.code == "record.value-reproduced"
    assert (
        "not checked: the intervals of its controls, which are of version 1"
        in finding.what
    )
    forged = json.loads(path.read_text())
    for score in (forged["score"], forged["scores"]["ridge"]):
        score["low"] += 0.01
    write_record(path, Record.model_validate(forged))
    assert recomputed().code == "record.not-reproduced", "its own interval is compared"
    score_all(lab, force=True)
    assert recomputed().code == "record.reproduced"


def test_a_refreshed_record_loses_its_signature(
    lab: Lab, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signature = signature_path(path)
    signature.write_text("signed")
    assert "signature" not in done(lab).what and signature.exists(), (
        "a current one keeps it"
    )
    another_method(monkeypatch)
    assert "its signature is removed, because it covers the interval" in done(lab).what
    assert not signature.exists()


def stored(lab: Lab, content: Record) -> Path:
    path = record_path(lab.root, content.benchmark, content.model)
    write_record(path, content)
    return path


def headline_with(**fields: Any) -> Record:
    """A record whose headline has some other fields."""
    return with_score(record("ant", RIDGE, 0.5), **fields)


def write_earlier(lab: Lab, plain: dict[str, Any]) -> Path:
    """Write a record in the form of an earlier version."""
    path = record_path(lab.root, plain["benchmark"], plain["model"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain | {"payload_sha256": payload_of(plain)}))
    return path


def earlier_form(**of_score: Any) -> dict[str, Any]:
    """A record whose headline, and the same score among the others, have some other fields."""
    plain = record("ant", RIDGE, 0.5).model_dump(mode="json")
    plain["score"] = {**plain["score"], **of_score}
    plain["scores"]["ridge"] |= {k: v for k, v in of_score.items() if k != "spread"}
    return plain


def drawn(error: float = 0.02) -> dict[str, Any]:
    """Draws of one factor, as earlier records store them."""
    values = np.random.default_rng(0).standard_normal(512).astype("<f2")
    text = base64.b64encode(values.tobytes()).decode()
    return {
        "draws": {"stimulus": text},
        "deviation": {"stimulus": error},
        "items": {"stimulus": 41},
    }


def test_a_record_that_stores_draws_gets_the_interval_of_their_deviation(
    lab: Lab,
) -> None:
    path = write_earlier(lab, earlier_form(spread=drawn()))
    before = read_record(path)
    assert before.intact and before.has_earlier_form
    finding = done(lab, path)
    assert finding.code == "record.refreshed"
    assert (
        "its interval was of earlier methods, and is now of version 1" in finding.what
    )
    after = read_record(path)
    assert after.intact and after.score is not None
    half = 0.02 * QUANTILE(0.975, 40)
    assert (after.score.low, after.score.high) == (
        pytest.approx(0.5 - half, rel=1e-3), pytest.approx(0.5 + half, rel=1e-3),
    )  # fmt: skip
    assert after.scores["ridge"].low == after.score.low, (
        "the headline is one of the scores"
    )
    was, now = before.as_score().uncertainty, after.as_score().uncertainty
    assert was is not None and now is not None
    np.testing.assert_array_equal(was.parts[0].values, now.parts[0].values)
    assert done(lab, path).code == "record.interval-current"


def test_a_score_counted_from_a_floor_keeps_its_limits(lab: Lab) -> None:
    """Earlier records state neither limits nor perfection: they follow from the raw score and the dummy."""
    plain = earlier_form(
        spread=drawn(0.1), ceiling=None, scale="accuracy", value=0.8, raw=0.9, low=0.6, high=0.95, n={"dummy": 0.5}
    )  # fmt: skip
    after = refreshed(record_of(plain)).score
    assert after is not None and 0.4 < after.low < 0.8 < after.high < 1.0
    assert after.high - 0.8 < 0.8 - after.low, "on the log odds between −1 and 1"


def test_an_interval_without_deviations_stays(lab: Lab) -> None:
    path = stored(lab, record("ant", RIDGE, 0.5))
    before = path.read_bytes()
    finding = done(lab, path)
    assert (finding.code, finding.severity) == ("record.interval-kept", "warning")
    assert (
        finding.fix
        == "compute it again: `neuroledger run ant --benchmark lab.V4-ridge --force`"
    )
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [record("ant", RIDGE, None), record("ant", RIDGE, 0.5, half=None)],
    ids=["failed", "no interval"],
)
def test_a_record_without_an_interval_is_current(lab: Lab, content: Record) -> None:
    assert done(lab, stored(lab, content)).code == "record.interval-current"


def test_an_interval_of_a_later_version_stays(
    lab: Lab, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    another_method(monkeypatch, version=7)
    done(lab)
    before = path.read_bytes()
    monkeypatch.setattr(inference, "VERSION", 2)
    finding = done(lab)
    assert (finding.code, finding.fix) == ("record.interval-kept", "update NeuroLedger")
    assert "version 7, later than 2" in finding.what and path.read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (
            lambda text: text.replace('"value": ', '"value": 0.1, "was": ', 1),
            "record.edited",
        ),
        (lambda text: "{}", "record.unreadable"),
    ],
)
def test_an_edited_record_is_not_sealed_again(
    lab: Lab,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[str], str],
    code: str,
) -> None:
    another_method(monkeypatch)
    path.write_text(damage(path.read_text()))
    before = path.read_bytes()
    finding = done(lab)
    assert finding.severity == "error" and finding.code in {code, "record.unreadable"}
    assert path.read_bytes() == before


def test_only_the_named_records_are_refreshed(
    lab: Lab, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = stored(
        lab, headline_with(uncertainty=StoredUncertainty.of(of_items(np.arange(9.0))))
    )
    another_method(monkeypatch)
    before = path.read_bytes()
    assert done(lab, other).code == "record.refreshed" and path.read_bytes() == before
    assert [finding.where for finding in refresh(lab.open())] == [
        WHERE.replace("pixels4", "ant"),
        WHERE,
    ]
    with pytest.raises(RequestError, match=r"nothing\.json does not exist"):
        refresh(lab.open(), [lab.root / "nothing.json"])


def test_of_private_data_the_sum_of_squares_is_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = of_items(np.random.default_rng(0).normal(size=30))
    both = [
        headline_with(uncertainty=StoredUncertainty.of(known, summed=private))
        for private in (False, True)
    ]
    another_method(monkeypatch)
    by_item, summed = (refreshed(content).score for content in both)
    assert by_item is not None and summed is not None
    assert by_item.high - by_item.low == pytest.approx(
        3 * QUANTILE(0.975, 29) * known.error
    )
    assert (by_item.low, by_item.high) == (
        pytest.approx(summed.low), pytest.approx(summed.high),
    )  # fmt: skip


def test_a_refresh_is_a_function_of_the_record(
    lab: Lab, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = read_record(path)
    plain = copy.deepcopy(content.model_dump())
    assert content.earlier_version is None and refreshed(content) == content
    another_method(monkeypatch)
    assert content.earlier_version == 1 and refreshed(content) != content
    assert content.model_dump() == plain, "the record in memory does not change"
    assert not math.isnan(refreshed(content).as_score().low)


def test_the_command_lists_what_it_did(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NEUROLEDGER_DISPLAY", "none")
    bare = stored(lab, record("ant", RIDGE, 0.5))
    another_method(monkeypatch)
    root = ["--root", str(lab.root), "refresh"]
    assert main(root) == 0
    said = capsys.readouterr().out
    assert f"✓ {WHERE}: its interval was of version 1, and is now of version 2" in said
    assert said.endswith("2 records: 1 refreshed, 0 current, 1 kept as they are\n")
    assert main([*root, "--json"]) == 0
    codes = [finding["code"] for finding in json.loads(capsys.readouterr().out)]
    assert codes == ["record.interval-kept", "record.interval-current"]
    bare.write_text("{}")
    assert (
        main([*root, str(bare)]) == 1 and "is not a record" in capsys.readouterr().out
    )
