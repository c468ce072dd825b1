"""A torch network of sixty layers, four regions and two assemblies of the same images: every image is computed once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

import neuroledger as nl  # noqa: E402
from neuroledger.data import assembly as assemblies  # noqa: E402
from tests.engine.lab import IMAGES, Lab, build  # noqa: E402

REGIONS = ("V1", "V2", "V4", "IT")
LOOKS = 2


def pins(folder: Path) -> dict[str, dict[str, object]]:
    return {
        path.name: {
            "url": f"https://example.org/{path.name}",
            "size": path.stat().st_size,
            "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        }
        for path in sorted(folder.iterdir())
    }


class Deep(nn.Sequential):
    """Sixty convolutions, and a count of the images that passed through."""

    def __init__(self) -> None:
        super().__init__(
            *(
                nn.Conv2d(3 if number == 0 else 4, 4, 3, padding=1)
                for number in range(60)
            )
        )
        self.seen: list[int] = []

    def forward(self, images: Any) -> Any:
        self.seen.append(len(images))
        return super().forward(images)


@pytest.fixture
def lab(tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """Two data sets of the same images with other recordings, four regions each."""
    lab = build(tmp_path / "lab", repository)
    other = lab.root / "data" / "other"
    other.mkdir()
    for path in lab.data.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    recorded = assemblies.read(lab.data / "responses.nc")
    assemblies.write(recorded.copy(data=-recorded.values), other / "responses.nc")
    lab.dataset()
    lab.spec(
        "datasets",
        "other",
        license="CC0-1.0",
        simulated=True,
        files=pins(other),
        reader={"name": "netcdf"},
        expectations={
            "stimuli": [{"check": "unique", "column": "stimulus_id"}],
            "assembly": [{"check": "repetitions", "count": 6}],
        },
    )
    for data in ("lab", "other"):
        for region in REGIONS:
            lab.benchmark(
                f"{data}.{region}",
                dataset=data,
                paradigm={"name": "recording", "region": region},
                controls={"negative": ["noise"]},
            )
    monkeypatch.chdir(lab.root)
    monkeypatch.delenv("NEUROLEDGER_ACTIVATIONS", raising=False)
    return lab


def test_one_pass_serves_all_regions_and_assemblies(lab: Lab) -> None:
    from neuroledger.data.gate.validate import validate

    for data in ("lab", "other"):
        assert validate(lab.open(), data).success
    torch.manual_seed(0)
    module = Deep()
    names = [str(number) for number in range(60)]
    regions = {
        region: tuple(names[15 * n : 15 * n + 15]) for n, region in enumerate(REGIONS)
    }
    preprocessing = {"resize": 8, "mean": [0.5], "std": [0.5]}
    model = nl.models.torch(
        module, id="deep", layers=names, regions=regions, preprocessing=preprocessing
    )
    scores = [
        nl.score(model, f"{data}.{region}")
        for data in ("lab", "other")
        for region in REGIONS
    ]
    assert all(score.status == "scored" for score in scores)
    passes = [count for count in module.seen if count > LOOKS]
    assert sum(passes) == IMAGES, "every image once, whatever was asked"
    assert len(module.seen) - len(passes) <= 3 + 2 * len(scores), (
        "beside looks at the first two images"
    )
