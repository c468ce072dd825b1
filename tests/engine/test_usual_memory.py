"""The memory that jobs took is remembered, and what a later run may expect to need."""

from __future__ import annotations

import json

import pytest

from neuroledger.cli import main
from neuroledger.data.memory import PROCESS
from neuroledger.display import NoDisplay
from neuroledger.engine.executors.sharing import machine_needs
from neuroledger.engine.plan import plan
from neuroledger.engine.run import run
from neuroledger.engine.session import Request
from tests.engine.lab import IMAGES, Lab

pytestmark = pytest.mark.skipif(
    not (PROCESS / "clear_refs").exists(), reason="only Linux tells the peak of a job"
)

FEATURES = 60_000
BYTES = 8 * FEATURES * IMAGES


def test_jobs_usually_need_what_they_took_and_others_of_their_benchmark_at_most_that(
    valid: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    for id in ("wide", "later"):
        valid.spec(
            "models",
            id,
            builder={"name": "noise", "features": FEATURES},
            regions={"V4": "noise"},
        )
    catalog, request = valid.open(), Request()
    asked = {"benchmarks": ["lab.V4-ridge"], "request": request}
    jobs = plan(catalog, models=["noise", "wide", "later"], **asked).jobs
    assert not any(needs.bytes for needs in machine_needs(catalog, jobs).values())
    done = [each for each in jobs if each.model != "later"]
    run(catalog, done, request, NoDisplay())
    needs = {job.model: each for job, each in machine_needs(catalog, jobs).items()}
    assert needs["noise"].measured and needs["wide"].measured
    assert BYTES < needs["wide"].usual - needs["noise"].usual < 20 * BYTES
    assert needs["later"] == needs["wide"]._replace(measured=False)
    for force, ends in (
        ([], ("", " GB (estimated)")),
        (["--force"], (" GB (measured in an earlier run)", " GB (estimated)")),
    ):
        words = ["run", "noise", "later", "--dry-run", *force, "--json"]
        assert main([*words, "--root", str(valid.root)]) == 0
        rows = json.loads(capsys.readouterr().out)["jobs"]
        shown = {row["model"]: row["needs"] for row in rows}
        assert shown["noise"].endswith(ends[0]) and shown["later"].endswith(ends[1])
        assert bool(shown["noise"]) == bool(force), "only what is to do is told"
