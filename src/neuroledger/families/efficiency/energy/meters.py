"""Meters of energy that a machine has itself: counters of its processor packages (RAPL) or of its graphics card (NVML)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from neuroledger.errors import MetricError
from neuroledger.families.efficiency.counting.batches import Network, answered, evaluation, size_of
from neuroledger.families.efficiency.counting.counts import Energy
from neuroledger.families.efficiency.energy.timing import device_of, wait

__all__ = ["POWERCAP", "Domain", "Meter", "find_meter", "measure_energy", "rapl"]

POWERCAP = Path("/sys/class/powercap")
SECONDS = 1.0
"""A reading spans at least so long: counters move about a thousand times a second."""
WARM_UP = 3

INSTEAD = "declare a model (`energy_45nm`, or `energy` with a price for each operation) or hand in a reading of your own"


@dataclass(frozen=True)
class Domain:
    """One counter of microjoules, which starts again from 0 beyond ``span``."""

    name: str
    file: Path
    span: int

    def read(self) -> int:
        """The counter as it stands.

        Raises
        ------
        MetricError
            It may not be read, which since 2020 only root may on most systems.
        """
        try:
            return int(self.file.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise MetricError(
                f"the energy counter {self.file} cannot be read ({error}): {INSTEAD}"
            ) from error

    def since(self, before: int) -> int:
        """Microjoules since a reading, the counter having started again at most once."""
        now = self.read()
        return now - before if now >= before else now + self.span - before


@dataclass(frozen=True)
class Meter:
    """What a meter is called, and a start that returns a stop that returns joules."""

    name: str
    start: Callable[[], Callable[[], float]]


def rapl(root: Path | None = None) -> Meter:
    """The packages of the processor, and their memory where it is counted apart, summed.

    Raises
    ------
    MetricError
        There is no such counter under ``root`` (``/sys/class/powercap``).
    """
    root = POWERCAP if root is None else root
    domains = []
    for folder in sorted(root.glob("*rapl:*")) if root.is_dir() else ():
        try:
            name = (folder / "name").read_text(encoding="ascii").strip()
            span = int((folder / "max_energy_range_uj").read_text(encoding="ascii"))
        except (OSError, ValueError):
            continue
        if name.startswith("package") or name == "dram":
            domains.append(Domain(name, folder / "energy_uj", span))
    if not domains:
        raise MetricError(f"no meter: {root} has no energy counter of a processor package; {INSTEAD}")

    def start() -> Callable[[], float]:
        before = [domain.read() for domain in domains]
        return lambda: sum(d.since(b) for d, b in zip(domains, before, strict=True)) * 1e-6

    return Meter(f"RAPL ({', '.join(domain.name for domain in domains)})", start)


def nvml(device: torch.device) -> Meter:
    """The counter of a graphics card, by the package ``pynvml``.

    Raises
    ------
    MetricError
        The package or the counter is not there.
    """
    try:
        import pynvml
    except ImportError as error:
        raise MetricError(
            f"no meter: pynvml is not installed (pip install nvidia-ml-py); {INSTEAD}"
        ) from error
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByIndex(device.index or 0)
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError as error:
        raise MetricError(f"no meter: the card counts no energy ({error}); {INSTEAD}") from error

    def start() -> Callable[[], float]:
        before = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        return lambda: (pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - before) * 1e-3

    return Meter(f"NVML (card {device.index or 0})", start)


def find_meter(device: torch.device) -> Meter:
    """The meter of where a network runs.

    Raises
    ------
    MetricError
        There is none; the message says what to do instead.
    """
    return nvml(device) if device.type == "cuda" else rapl()


def measure_energy(
    network: Network, inputs: object, time_axis: int | None, meter: Meter | None = None
) -> Energy:
    """Energy of bare passes over the first batch, repeated for at least a second after warm-up.

    It is what the whole package or card took meanwhile, idle power and other programs included.

    Raises
    ------
    MetricError
        There is no meter, or its counter did not move.
    """
    device = device_of(network.module, inputs)
    meter = meter or find_meter(device)
    for _ in range(WARM_UP):
        with evaluation(network):
            answered(network, inputs, time_axis)
    wait(device)
    stop, began, passes = meter.start(), time.perf_counter(), 0
    while passes == 0 or time.perf_counter() - began < SECONDS:
        with evaluation(network):
            answered(network, inputs, time_axis)
            wait(device)
        passes += 1
    joules, seconds = stop(), time.perf_counter() - began
    if joules <= 0:
        raise MetricError(f"the meter {meter.name} counted nothing in {seconds:.2f} s: {INSTEAD}")
    return Energy(joules, passes * size_of(inputs), seconds, meter.name)
