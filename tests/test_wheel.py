"""The package as a wheel, far from its checkout: what is shipped is there by its id, in any repository and in none."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

HERE = """
import numpy as np, torch, xarray as xr
import neuroledger as nl
rng = np.random.default_rng(0)
ids = {"stimulus_id": ("presentation", np.arange(60)), "repetition": ("presentation", np.zeros(60, int))}
x = xr.DataArray(rng.standard_normal((60, 5)), dims=("presentation", "neuroid"), coords=ids)
assert nl.metric("ridge", splits={"stratify": None})(x, x).value > 0.99
assert nl.ceiling("internal_consistency").spec.id == "internal_consistency"
assert nl.cost(torch.nn.Linear(5, 2), [torch.ones(3, 5)], ["dense_operations"])["dense_operations"].value == 10
assert nl.find("suites").index.tolist() == ["sample"] and "pls" in nl.find("metrics").index
assert nl.load("sample").assembly.sizes == {"presentation": 400, "neuroid": 30}
assert nl.score("pixels16", "sample.V4-ridge").value > 0.3
try:
    nl.score("pixels16", "Digits.simulated.V4-pls")
except nl.errors.RequestError as error:
    assert "cd into your clone" in str(error)
else:
    raise SystemExit("a benchmark was found where there is none")
from pathlib import Path
from neuroledger.engine.check import check
from neuroledger.spec.catalog import open_catalog
Path("own/specs/metrics").mkdir(parents=True)
Path("own/dvc.yaml").write_text("stages: {}\\n")
Path("own/specs/metrics/mine.yaml").write_text(
    "id: mine\\nversion: 1\\ntitle: Mine\\ncompare: {name: cka}\\nscale: similarity\\ncite: [song2012]\\n"
)
own = open_catalog(Path("own"))
assert check(own) == ([], 1), check(own)
assert own.model("noise").builder.name == "noise" and own.metric("pls").scale == "correlation"
assert not any(own.ids(kind) for kind in ("datasets", "benchmarks", "suites"))
assert "definitions" in own.entry("models", "noise").path.parts
print("well")
"""


@pytest.mark.slow
def test_a_wheel_holds_the_definitions_that_need_no_repository(
    repository: Path, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    names = subprocess.run(
        [
            "git",
            "ls-files",
            "src",
            "specs",
            "*.toml",
            "*.in",
            "setup.py",
            "README.md",
            "LICENSE",
        ],
        cwd=repository,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    for name in names:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_bytes((repository / name).read_bytes())
    build = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
        ".",
    ]
    subprocess.run(build, cwd=source, check=True)
    (wheel,) = tmp_path.glob("neuroledger-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("NEUROLEDGER_")
    }
    environment["PYTHONPATH"] = str(tmp_path / "installed")
    environment["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", HERE],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.stdout.strip() == "well", done.stderr
