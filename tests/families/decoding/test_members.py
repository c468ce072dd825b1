"""A data set of several data sets: its members are gated as alone, joined, and part of the identity of every score."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from pydantic import TypeAdapter

from neuroledger.cli import main
from neuroledger.data import assembly as assemblies
from neuroledger.data.gate.validate import refusal, refused_here, validate
from neuroledger.data.integrity import absent, verified_files
from neuroledger.data.load import load_dataset
from neuroledger.data.pin.downloads import Downloads
from neuroledger.data.pin.pin import pin
from neuroledger.engine.check import check
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.plan import plan, prepared_as
from neuroledger.engine.run import not_ready
from neuroledger.engine.session import Request, Session
from neuroledger.errors import (
    DataError,
    IntegrityError,
    MissingError,
    RequestError,
    SpecError,
    UnavailableError,
)
from neuroledger.families.decoding.audit import audit_dataset
from neuroledger.families.decoding.protocols.splits import SplitRule, draw_folds
from neuroledger.families.signals.model_needs import Needs
from neuroledger.families.signals.signals import signals
from tests.engine.lab import Lab, build
from tests.families.decoding.recorded_repository import LABRAM

JOINED = {
    "license": "CC0-1.0",
    "simulated": True,
    "members": ["one", "other"],
    "reader": {"name": "joined_sets"},
    "expectations": {"assembly": [{"check": "values_finite"}]},
}
ACROSS = {
    "name": "declared",
    "column": "dataset",
    "train": ["one"],
    "test": ["other"],
    "apart": ["subject"],
}


def simulated(
    channels: Sequence[str],
    seed: int,
    *,
    words: tuple[str, str] = ("left", "right"),
    rate: float = 64.0,
    types: str = "eeg",
) -> xr.DataArray:
    """Windows of four people, of whom the second word has more power at C3, whatever the order of the channels."""
    rng = np.random.default_rng(seed)
    labels = np.tile(words, 40)
    people = np.repeat(["1", "2", "3", "4"], 20)
    values = rng.standard_normal((80, len(channels), 64))
    values[1::2, [name.lower() for name in channels].index("c3")] *= 2.0
    events = {
        "stimulus_id": labels,
        "subject": people,
        "recording": people,
        "onset": np.tile(2.0 * np.arange(20), 4),
        "label": labels,
    }
    return signals(
        values,
        channels=channels,
        channel_types=types,
        sampling_rate=rate,
        start=0.0,
        units="uV",
        events=events,
    )


def write(lab: Lab, id: str, windows: xr.DataArray, **fields: Any) -> None:
    """Write a data set of windows and its spec."""
    folder = lab.root / "data" / id
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "signals.nc").unlink(missing_ok=True)
    assemblies.write(windows, folder / "signals.nc")
    declared = {
        "license": "CC0-1.0",
        "simulated": True,
        "modality": "eeg",
        "files": lab.pins(id),
        "reader": {"name": "prepared_signals"},
        "expectations": {"assembly": [{"check": "units", "units": "uV"}]},
    }
    lab.spec("datasets", id, **(declared | fields))


@pytest.fixture(scope="session")
def _two(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Lab:
    lab = build(tmp_path_factory.mktemp("two") / "lab", repository)
    write(lab, "one", simulated(["C3", "Cz", "C4"], 0))
    write(lab, "other", simulated(["C4", "Oz", "c3", "CZ"], 1))
    lab.spec("datasets", "both", **JOINED)
    lab.spec(
        "benchmarks",
        "both-across",
        parent="decoding",
        dataset="both",
        paradigm={"name": "decoding", "seeds": [33], "splits": ACROSS},
        metric={"name": "balanced_accuracy", "cluster": "subject"},
        floor={"dummy": 0.5},
    )
    lab.spec("models", "cov", builder={"name": "covariance_decoder"})
    assert validate(lab.open(), "both").success
    return lab


@pytest.fixture
def two(tmp_path: Path, _two: Lab) -> Lab:
    """A repository with two small simulated data sets, and the data set that joins them, all valid."""
    return Lab(shutil.copytree(_two.root, tmp_path / "two"))


def job_of(lab: Lab) -> Any:
    (job,) = plan(
        lab.open(), models=["cov"], benchmarks=["both-across"], request=Request()
    ).jobs
    return job


def test_a_decoder_trained_on_one_set_is_scored_on_the_people_of_the_other(
    two: Lab,
) -> None:
    catalog = two.open()
    # The members are validated with the data set that they are members of.
    assert [refusal(catalog, id) for id in ("one", "other", "both")] == [None] * 3
    found = evaluate(
        Session(catalog, Request()), catalog.benchmark("both-across"), "cov"
    )
    assert found.headline.value > 0.9
    tested = set(found.measured.source["subject"].values.astype(str).tolist())
    assert tested == {f"other/{number}" for number in range(1, 5)}
    windows = load_dataset(catalog, "both").assembly
    assert windows is not None
    rule = TypeAdapter(SplitRule).validate_python(
        {"name": "cross_subject", "by": "dataset"}
    )
    left_out = [
        set(windows["dataset"].values[fold.test].tolist())
        for fold in draw_folds(rule, windows)
    ]
    assert left_out == [{"one"}, {"other"}]


def test_the_identity_of_a_score_has_those_of_the_members(two: Lab) -> None:
    job = job_of(two)
    members = job.inputs.dataset.members
    assert [member.id for member in members] == ["one", "other"]
    content = (two.root / "data" / "one" / "signals.nc").read_bytes()
    assert members[0].files == {"signals.nc": hashlib.sha256(content).hexdigest()}
    # Other bytes, another reader field and another member are other inputs; a title is not.
    write(two, "one", simulated(["C3", "Cz", "C4"], 2))
    changed = job_of(two)
    assert changed.id != job.id
    assert changed.inputs.changed_from(job.inputs) == ["dataset"]
    write(two, "one", simulated(["C3", "Cz", "C4"], 0), title="Another title")
    assert job_of(two).id == job.id
    named = {"name": "prepared_signals", "threshold": 0.5}
    write(two, "one", simulated(["C3", "Cz", "C4"], 0), reader=named)
    assert job_of(two).id != job.id
    # Inputs of data sets without members are written as before.
    two.benchmark("lab.V4-again")
    (alone,) = plan(
        two.open(), models=["pixels4"], benchmarks=["lab.V4-again"], request=Request()
    ).jobs
    assert "members" not in alone.inputs.model_dump(mode="json")["dataset"]


def test_changed_bytes_of_a_member_are_refused(two: Lab) -> None:
    path = two.root / "data" / "other" / "signals.nc"
    path.write_bytes(path.read_bytes()[:-1] + b"\x00\x01")
    for use in (validate, load_dataset):
        with pytest.raises(IntegrityError, match=r"signals\.nc"):
            use(two.open(), "both")
    with pytest.raises(IntegrityError):
        verified_files(two.open(), "datasets", "both", trust_memory=False)


def test_a_member_that_fails_its_gate_is_refused_as_alone(two: Lab) -> None:
    wrong = {"assembly": [{"check": "units", "units": "V"}]}
    write(two, "other", simulated(["C4", "Oz", "c3", "CZ"], 1), expectations=wrong)
    catalog = two.open()
    assert refused_here(catalog, "both") == refused_here(catalog, "other")
    report = validate(catalog, "both")
    assert not report.success
    (finding,) = report.errors
    assert finding.where == "data set 'other'"
    assert "units: V declared, found uV" in finding.what
    assert refused_here(catalog, "both") == refused_here(catalog, "other")
    with pytest.raises(DataError, match="data set 'other': it failed validation"):
        evaluate(Session(catalog, Request()), catalog.benchmark("both-across"), "cov")


def test_a_missing_or_unvalidated_member_is_pending(two: Lab) -> None:
    (two.root / "results" / "validation" / "one.json").unlink()
    pending = not_ready(two.open(), "datasets", "both")
    assert pending is not None
    assert pending.code == "data.not-validated"
    assert pending.command == "neuroledger validate both"
    (two.root / "data" / "one" / "signals.nc").unlink()
    missing = absent(two.open(), "datasets", "both")
    assert missing is not None
    assert missing.what.startswith("1 of 2 files are missing")
    with pytest.raises(MissingError):
        validate(two.open(), "both")


def test_a_member_that_is_not_pinned_closes_the_data_set(
    two: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    two.spec(
        "datasets", "other", license="CC0-1.0", simulated=True, unavailable="not pinned"
    )
    catalog = two.open()
    words = "its member other is unavailable: not pinned"
    assert catalog.closed("both") == words
    found = plan(catalog, models=["cov"], benchmarks=["both-across"], request=Request())
    assert not found.jobs
    assert found.unavailable == {"both-across": words}
    with pytest.raises(UnavailableError, match=words):
        load_dataset(catalog, "both")
    main(["--root", str(two.root), "list", "datasets", "--filter", "both", "--json"])
    states = {row["id"]: row["state"] for row in json.loads(capsys.readouterr().out)}
    assert states["both"] == "unavailable"


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (simulated(["C3", "Cz"], 1, rate=32.0), "sampling_rate of one is 64.0"),
        (simulated(["C3", "Cz"], 1, types="ecog"), "channel C3 is of type eeg in one"),
        (simulated(["C3", "c3"], 1), "differ only in capitals"),
        (simulated(["C3", "Cz"], 1, words=("L", "R")), "no other member has a label"),
    ],
)
def test_members_that_do_not_fit_fail_the_gate_of_the_whole(
    two: Lab, other: xr.DataArray, words: str
) -> None:
    write(two, "other", other)
    report = validate(two.open(), "both")
    assert report.stages["structure"] == "failed"
    assert words in report.errors[0].what


def test_words_of_a_member_are_translated(two: Lab) -> None:
    write(two, "other", simulated(["C3", "Cz"], 1, words=("L", "R")))
    words = {"other": {"L": "left", "R": "right"}}
    two.spec(
        "datasets",
        "both",
        **(JOINED | {"reader": {"name": "joined_sets", "labels": words}}),
    )
    windows = load_dataset(two.open(), "both").assembly
    assert windows is not None
    assert windows["label"].values.tolist() == ["left", "right"] * 80
    words = {"other": {"X": "left"}}
    two.spec(
        "datasets",
        "both",
        **(JOINED | {"reader": {"name": "joined_sets", "labels": words}}),
    )
    with pytest.raises(
        DataError, match="no window of 'other' has the label X; it has L, R"
    ):
        load_dataset(two.open(), "both")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"simulated": False}, "its member one is simulated"),
        ({"members": ["one", "hidden"]}, "its member hidden is private"),
        ({"members": ["one", "both"]}, "both has members itself"),
        ({"members": ["one", "nothing"]}, "no dataset 'nothing'"),
        ({"members": ["one", "one"]}, "two or more different data sets"),
        ({"reader": {"name": "prepared_signals"}}, "reads files"),
    ],
)
def test_check_finds_members_that_do_not_fit(
    two: Lab, fields: dict[str, Any], words: str
) -> None:
    write(two, "hidden", simulated(["C3"], 3), access="private")
    path = two.spec("datasets", "wrong", **(JOINED | fields))
    found = [
        finding
        for finding in check(two.open(), [path])[0]
        if finding.severity == "error"
    ]
    assert any(words in finding.what for finding in found), found
    with pytest.raises((SpecError, RequestError, UnavailableError)):
        load_dataset(two.open(), "wrong")


def test_the_commands_treat_it_by_its_members(
    two: Lab, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = (two.root / "data" / "one" / "signals.nc").read_bytes()
    mirror = two.root / "mirror"
    mirror.mkdir()
    (mirror / "signals.nc").write_bytes(content)
    monkeypatch.setenv("NEUROLEDGER_MIRROR", str(mirror))
    (two.root / "data" / "one" / "signals.nc").unlink()
    root = ["--root", str(two.root)]
    assert main([*root, "fetch", "both"]) == 0
    assert "1 files fetched, 1 already present" in capsys.readouterr().err
    assert (two.root / "data" / "one" / "signals.nc").read_bytes() == content
    assert main([*root, "validate", "both"]) == 0
    assert "2 files verified" in capsys.readouterr().out
    assert main([*root, "show", "both"]) == 0
    assert "other/signals.nc" in capsys.readouterr().out
    assert main([*root, "check"]) == 0
    with pytest.raises(RequestError, match="audit its members, one, other"):
        audit_dataset(two.open(), "both")
    with pytest.raises(RequestError, match="pin those of its members, one, other"):
        pin(two.open(), "both", Downloads(folder=mirror))


def test_each_member_is_prepared_as_the_model_needs(two: Lab) -> None:
    recorded = {
        "name": "mne_epochs",
        "recordings": [{"file": "signals.nc", "subject": "1"}],
    }
    recorded |= {"window": {"start": 0.0, "duration": 1.0, "labels": {"a": "a"}}}
    write(two, "other", simulated(["C3"], 1), reader=recorded)
    needs = Needs.model_validate(LABRAM)
    with pytest.raises(RequestError, match="data set 'one' cannot be prepared"):
        prepared_as(two.open(), "both", needs)
    write(two, "one", simulated(["C3"], 1), reader=recorded)
    changed = prepared_as(two.open(), "both", needs)
    assert set(changed) == {"one", "other"}
    assert changed["one"]["preprocessing"]["resample"] == 200.0  # type: ignore[index]
