"""Meters of energy: counters of the processor's packages, and of a graphics card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from neuroledger.errors import MetricError

if TYPE_CHECKING:
    import torch

__all__ = ["INSTEAD", "Domain", "Meter", "find_meter", "nvml", "rapl"]

POWERCAP = Path("/sys/class/powercap")
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
