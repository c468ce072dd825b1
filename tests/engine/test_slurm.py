"""Jobs on a Slurm cluster of `dask-jobqueue`, whose commands are replaced by ones that start job scripts here."""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path

import pytest

from neuroledger.display import NoDisplay
from neuroledger.engine.plan import plan
from neuroledger.engine.record import read_record
from neuroledger.engine.records.inputs import Request
from neuroledger.engine.run import run
from tests.engine.lab import Lab

distributed = pytest.importorskip("distributed")
jobqueue = pytest.importorskip("dask_jobqueue")

SBATCH = """#!/bin/sh
# Start a job script in a session of its own, and print its number as Slurm does.
cp "$1" "{folder}/$$.script"
setsid sh "{folder}/$$.script" > "{folder}/$$.log" 2>&1 &
echo $! > "{folder}/$$.pid"
echo "Submitted batch job $$"
"""
SCANCEL = """#!/bin/sh
kill -TERM -- "-$(cat "{folder}/$1.pid")"
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with the script and the log of each job that is submitted."""
    folder, commands = tmp_path / "jobs", tmp_path / "bin"
    folder.mkdir()
    commands.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        command = commands / name
        command.write_text(text.format(folder=folder))
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.mark.slow
def test_jobs_are_submitted_scored_and_ended_as_they_are_needed(
    valid: Lab, jobs: Path
) -> None:
    catalog = valid.open()
    planned = plan(catalog, suites=[catalog.suite("lab")], request=Request()).jobs
    run(catalog, planned, Request(), NoDisplay())
    folder = valid.root / "results" / "records"
    expected = _payloads(folder)
    shutil.rmtree(folder)
    with jobqueue.SLURMCluster(
        cores=1, processes=1, memory="2GB", walltime="00:10:00"
    ) as cluster:
        cluster.adapt(minimum=0, maximum=2)
        with distributed.Client(cluster, set_as_default=False) as client:
            found = run(catalog, planned, Request(), NoDisplay(), executor=client)
        assert not [each.pending for each in found if each.pending is not None]
        _wait_until_ended(jobs)
    assert len(found) == len(expected) and _payloads(folder) == expected
    scripts = [path.read_text() for path in jobs.glob("*.script")]
    assert scripts and all(re.search("#SBATCH --mem=2G", text) for text in scripts)


def _payloads(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): read_record(path).payload()
        for path in folder.rglob("*.json")
    }


def _wait_until_ended(jobs: Path) -> None:
    """Wait until an idle cluster has ended each of its jobs."""
    until = time.monotonic() + 60
    while any(_runs(path) for path in jobs.glob("*.pid")):
        assert time.monotonic() < until, "jobs do not end"
        time.sleep(0.2)


def _runs(path: Path) -> bool:
    try:
        os.kill(int(path.read_text()), 0)
    except ProcessLookupError:
        return False
    return True
