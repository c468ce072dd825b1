"""Energy from the machine's counters, which are simulated by files."""

from __future__ import annotations

import itertools
import sys
import types

import pytest
import torch
from torch import nn

import neuroledger as nl
from neuroledger.errors import MetricError
from neuroledger.families.efficiency.counting import measured, meters
from neuroledger.families.efficiency.counting.network import Network


@pytest.fixture(autouse=True)
def here(monkeypatch, repository):
    monkeypatch.chdir(repository)


def counter(root, folder, name, value, span=1_000_000):
    (root / folder).mkdir(parents=True)
    for file, content in (
        ("name", name),
        ("energy_uj", value),
        ("max_energy_range_uj", span),
    ):
        (root / folder / file).write_text(f"{content}\n")
    return root / folder / "energy_uj"


def test_packages_and_their_memory_are_summed_and_counters_may_wrap(tmp_path):
    one = counter(tmp_path, "intel-rapl:0", "package-0", 999_000)
    two = counter(tmp_path, "intel-rapl:1", "package-1", 10)
    memory = counter(tmp_path, "intel-rapl:0:1", "dram", 0)
    counter(
        tmp_path, "intel-rapl:0:0", "core", 0
    )  # a part of its package: counted there
    counter(
        tmp_path, "intel-rapl:2", "psys", 0
    )  # the whole machine: packages are a part of it
    stop = meters.rapl(tmp_path).start()
    one.write_text("4000\n")  # from 999,000 over 1,000,000 to 4,000
    two.write_text("2010\n")
    memory.write_text("500\n")
    assert stop() == pytest.approx((5000 + 2000 + 500) * 1e-6)
    assert meters.rapl(tmp_path).name == "RAPL (package-0, dram, package-1)"


def test_joules_per_sample_of_whole_batches(tmp_path, monkeypatch):
    file, ticks = (
        counter(tmp_path, "intel-rapl:0", "package-0", 0, 10**12),
        itertools.count(1),
    )
    network = nn.Sequential(nn.Linear(4, 2))
    monkeypatch.setattr(meters, "POWERCAP", tmp_path)
    monkeypatch.setattr(measured, "SHORTEST", 0.02)
    network.register_forward_hook(
        lambda *_: file.write_text(f"{3000 * next(ticks)}\n") and None
    )
    score = nl.cost(network, [torch.rand(6, 4)], ["energy_measured"])["energy_measured"]
    assert score.value == pytest.approx(
        3000e-6 / 6
    )  # 3 mJ for each pass of six samples
    assert score.unit == "J/sample" and score.n["seconds"] >= 0.02
    assert "measured, by RAPL (package-0)" in score.notes[0]


def test_a_missing_meter_is_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.setattr(meters, "POWERCAP", tmp_path / "nothing")
    score = nl.cost(
        nn.Sequential(nn.Linear(4, 2)), [torch.rand(2, 4)], ["energy_measured"]
    )["energy_measured"]
    assert (
        score.status == "failed"
        and "no meter" in score.reason
        and "energy_45nm" in score.reason
    )
    counter(tmp_path, "intel-rapl:0", "package-0", "secret")
    with pytest.raises(MetricError, match="cannot be read"):
        meters.rapl(tmp_path).start()


def test_a_counter_that_does_not_change_gives_no_energy(tmp_path, monkeypatch):
    counter(tmp_path, "intel-rapl:0", "package-0", 7)
    monkeypatch.setattr(measured, "SHORTEST", 0.01)
    with pytest.raises(MetricError, match="counted nothing"):
        measured.measure_energy(
            Network.of(nn.Linear(4, 2)), torch.rand(2, 4), None, meters.rapl(tmp_path)
        )


def test_a_graphics_card_is_found_by_its_id_and_counts_millijoules(monkeypatch):
    """With ``CUDA_VISIBLE_DEVICES=3``, card 0 of torch is card 3 of NVML."""
    readings, asked = iter([100, 100, 2600]), []
    cards = {1: types.SimpleNamespace(uuid="0a1b-2c")}
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: cards[device.index]
    )
    fake = types.SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda name: asked.append(name) or name,
        nvmlDeviceGetTotalEnergyConsumption=lambda handle: next(readings),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    meter = meters.find_meter(torch.device("cuda:1"))
    assert meter.start()() == pytest.approx(2.5)
    assert asked == ["GPU-0a1b-2c"] and meter.name == "NVML (GPU-0a1b-2c)"
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MetricError, match="pynvml"):
        meters.find_meter(torch.device("cuda"))
