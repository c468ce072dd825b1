"""What records say about a claim: a status, or what is pending; a look counts if its records are new."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from neuroledger.cli import main
from neuroledger.engine.claims.looks import looks_path, read_looks
from neuroledger.engine.claims.standing import Standing, look_at, standing
from neuroledger.engine.plan import inputs_of
from neuroledger.engine.record import Record, record_path
from neuroledger.engine.session import Request
from neuroledger.errors import DataError
from neuroledger.spec.catalog import open_catalog
from neuroledger.stats.stored_uncertainty import StoredUncertainty
from tests.engine.lab import Lab
from tests.report.ledger import altered, keep, ledger, record, score
from tests.report.test_history import git
from tests.varying import of_items

RIDGE, PLS = "lab.V4-ridge", "lab.V4-pls"


@pytest.fixture
def lab(tmp_path: Path, repository: Path) -> Lab:
    """Records in which ``ant`` is above ``bee`` by .2, clearly on one benchmark, and ``cat`` equals ``dog``."""
    lab = ledger(tmp_path / "lab", repository)
    for benchmark, noise in ((RIDGE, 0.05), (PLS, 0.1)):
        for model, value in (("ant", 0.6), ("bee", 0.4), ("cat", 0.5), ("dog", 0.5)):
            make(lab, model, benchmark, value, noise)
    claim(lab)
    return lab


def claim(lab: Lab, **fields: Any) -> None:
    known: dict[str, Any] = {
        "pairs": [{"above": "ant", "below": "bee"}],
        "benchmarks": [RIDGE, PLS],
    }
    lab.spec("claims", "better", **(known | fields))


def make(
    lab: Lab,
    model: str,
    benchmark: str,
    value: float,
    noise: float = 0.05,
    *,
    seed: int = 0,
    items: int = 40,
    **fields: Any,
) -> Record:
    """Write a record that is up to date, whose score varies over items by ``noise``."""
    catalog = lab.open()
    rng = np.random.default_rng([sum(map(ord, model + benchmark)), seed])
    values = value + noise * rng.normal(size=items)
    varies = of_items(values - values.mean() + value)
    low, high = varies.interval(value)
    known = StoredUncertainty.of(varies)
    plain = score(value) | {"low": low, "high": high, "uncertainty": known}
    asked = Request(seed=seed)
    inputs = inputs_of(catalog, catalog.benchmark(benchmark), model, asked)
    made = altered(
        record(model, benchmark, value),
        score=plain,
        scores={"ridge": plain},
        inputs=inputs.model_dump(mode="json"),
        id=inputs.sha256,
        request={"seed": seed, "limit": None, "device": "cpu"},
        **fields,
    ).sealed()
    keep(catalog, made)
    return made


def look(lab: Lab) -> Standing:
    return look_at(lab.open(), "better")


def numbers(lab: Lab) -> list[int]:
    return [one.number for one in read_looks(lab.root, "better").looks]


def test_a_claim_that_holds_on_every_path_is_supported(lab: Lab) -> None:
    found = look(lab)
    assert (found.status, found.agreeing, len(found.paths)) == ("supported", 2, 2)
    assert {path.benchmark for path in found.paths} == {RIDGE, PLS}
    claim(lab, at_least=0.19)
    assert look(lab).status == "not_distinguishable"
    claim(lab, at_least=0.5)
    assert look(lab).status == "contradicted"


def test_every_pair_is_a_path(lab: Lab) -> None:
    claim(
        lab,
        pairs=[{"above": a, "below": b} for a, b in (("ant", "bee"), ("cat", "dog"))],
    )
    found = look(lab)
    assert (found.status, found.agreeing, len(found.paths)) == (
        "not_distinguishable",
        2,
        4,
    )


def test_looks_count_if_their_records_are_new(lab: Lab) -> None:
    look(lab)
    before = looks_path(lab.root, "better").read_bytes()
    look(lab)
    assert looks_path(lab.root, "better").read_bytes() == before

    first = record_path(lab.root, RIDGE, "ant").read_bytes()
    make(lab, "ant", RIDGE, 0.61)
    assert look(lab).look is not None
    assert numbers(lab) == [1, 2]
    record_path(lab.root, RIDGE, "ant").write_bytes(first)
    look(lab)
    assert numbers(lab) == [1, 2, 1]
    make(lab, "ant", RIDGE, 0.62)
    look(lab)
    assert numbers(lab) == [1, 2, 1, 3]


def test_a_changed_claim_is_a_new_look(lab: Lab) -> None:
    look(lab)
    claim(lab, at_least=0.01)
    found = look(lab)
    assert found.look is not None and found.look.number == 2
    claim(lab, at_least=0.01, title="Other words for the same claim")
    look(lab)
    assert numbers(lab) == [1, 2]


def test_records_that_nobody_looked_at_are_pending_in_a_report(lab: Lab) -> None:
    catalog = lab.open()
    unseen = standing(catalog, "better")
    assert unseen.status == "pending" and not looks_path(lab.root, "better").exists()
    assert unseen.pending[0][1].command == "neuroledger claims better"
    look(lab)
    assert standing(catalog, "better").status == "supported"


@pytest.mark.parametrize(
    "what", ["missing", "damaged", "edited", "outdated", "partial"]
)
def test_a_record_that_is_not_current_is_pending_with_its_command(
    lab: Lab, what: str
) -> None:
    path = record_path(lab.root, PLS, "bee")
    if what == "missing":
        path.unlink()
    elif what == "damaged":
        path.write_text("{}")
    elif what == "edited":
        path.write_text(path.read_text().replace("0.4", "0.3"))
    elif what == "outdated":
        lab.benchmark(PLS, metric="pls", version=2)
        for model in ("ant",):
            make(lab, model, PLS, 0.6)
    else:
        make(lab, "bee", PLS, 0.4, status="partial")
    found = look(lab)
    assert found.status == "pending" and found.look is None
    assert [name for name, _ in found.pending] == [f"{PLS} · bee"]
    assert found.pending[0][1].command == f"neuroledger run bee --benchmark {PLS}"
    assert not looks_path(lab.root, "better").exists()


def test_records_of_two_seeds_are_pending(lab: Lab) -> None:
    make(lab, "bee", PLS, 0.4, seed=3)
    found = look(lab)
    assert found.pending[0][1].command == (
        f"neuroledger run bee --benchmark {PLS} --seed 0"
    )


def test_an_undefined_score_supports_nothing(lab: Lab) -> None:
    catalog = lab.open()
    inputs = inputs_of(catalog, catalog.benchmark(PLS), "bee", Request())
    plain = inputs.model_dump(mode="json")
    failed = altered(record("bee", PLS, None), inputs=plain, id=inputs.sha256)
    keep(catalog, failed.sealed())
    found = look(lab)
    assert found.status == "not_distinguishable"
    assert [path.gain.reason for path in found.paths] == [
        "",
        "the score of bee is undefined",
    ]


def test_a_status_that_was_edited_is_found(lab: Lab) -> None:
    claim(lab, at_least=0.19)
    look(lab)
    path = looks_path(lab.root, "better")
    path.write_text(path.read_text().replace("not_distinguishable", "supported"))
    with pytest.raises(DataError, match="states supported at look 1"):
        look(lab)


def test_the_mean_over_data_sets_needs_several_of_one_scale(lab: Lab) -> None:
    assert look(lab).pooled is None
    lab.spec(
        "datasets",
        "second",
        license="CC0-1.0",
        files=lab.pins(),
        reader={"name": "netcdf"},
    )
    lab.benchmark("second.V4-ridge", dataset="second")
    for model, value in (("ant", 0.55), ("bee", 0.45)):
        make(lab, model, "second.V4-ridge", value)
    claim(lab, benchmarks=[RIDGE, "second.V4-ridge"])
    mean = look(lab).pooled
    assert mean is not None and mean.datasets == 2
    assert mean.mean == pytest.approx(0.15, abs=0.02) and mean.predicted is None
    assert mean.inconsistency > 0.5


def test_the_commit_is_that_of_the_status(lab: Lab) -> None:
    git(lab.root, "init", "-q")
    look(lab)
    git(lab.root, "add", "-A")
    git(lab.root, "commit", "-m", "looked")
    head = git(lab.root, "rev-parse", "HEAD").strip()
    turn = look(lab).turn
    assert turn is not None and turn.commit == head


def test_the_command_states_status_and_commands(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    root = ["--root", str(lab.root)]
    assert main(["claims", *root]) == 0
    assert "better  supported  2 of 2" in capsys.readouterr().out
    assert main(["claims", "better", *root]) == 0
    text = capsys.readouterr().out
    assert "supported: 2 of 2 paths are above; look 1" in text
    assert f"{RIDGE}: ant above bee" in text
    assert main(["claims", "better", "--bibtex", *root]) == 0
    assert "note = {supported}" in capsys.readouterr().out

    record_path(lab.root, PLS, "bee").unlink()
    assert main(["claims", *root]) == 4
    line = f"pending: {PLS} · bee: there is no record: run `neuroledger run bee --benchmark {PLS}`"
    assert line in capsys.readouterr().out
    assert main(["claims", "--allow-pending", "--json", *root]) == 0
    (plain,) = json.loads(capsys.readouterr().out)
    assert (plain["status"], plain["look"], plain["paths"]) == ("pending", None, [])
    assert plain["pending"][0]["command"] == f"neuroledger run bee --benchmark {PLS}"


def test_the_claims_of_this_repository_were_looked_at(repository: Path) -> None:
    """A fresh clone has nothing to compute: each claim has a status, and the latest look is at the present records."""
    catalog = open_catalog(repository)
    statuses = {id: standing(catalog, id).status for id in catalog.own("claims")}
    assert statuses and "pending" not in statuses.values(), statuses
