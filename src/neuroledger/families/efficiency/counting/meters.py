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
    """A counter of microjoules, which wraps around to 0 beyond ``span``."""

    name: str
    file: Path
    span: int

    def read(self) -> int:
        """Read the counter.

        Raises
        ------
        MetricError
            The counter cannot be read. On most systems, only root has had permission since 2020.
        """
        try:
            return int(self.file.read_text(encoding="ascii"))
        except (OSError, ValueError) as error:
            raise MetricError(
                f"the energy counter {self.file} cannot be read ({error}): {INSTEAD}"
            ) from error

    def since(self, before: int) -> int:
        """Return the microjoules since a reading, with at most one wrap-around of the counter."""
        now = self.read()
        if now >= before:
            return now - before
        return now + self.span - before


@dataclass(frozen=True)
class Meter:
    """A meter's name and start function, which returns a stop function, which returns joules."""

    name: str
    start: Callable[[], Callable[[], float]]


def rapl(root: Path | None = None) -> Meter:
    """Return the meter of the processor's packages, and of their memory if it has a counter of its own.

    Raises
    ------
    MetricError
        There is no such counter under ``root`` (default ``/sys/class/powercap``).
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
        raise MetricError(
            f"no meter: {root} has no energy counter of a processor package; {INSTEAD}"
        )

    def start() -> Callable[[], float]:
        before = [domain.read() for domain in domains]
        return lambda: (
            sum(d.since(b) for d, b in zip(domains, before, strict=True)) * 1e-6
        )

    return Meter(f"RAPL ({', '.join(domain.name for domain in domains)})", start)


def nvml(device: torch.device) -> Meter:
    """Return the meter of a graphics card, read with the package ``pynvml``.

    The card is found by its unique id, because ``CUDA_VISIBLE_DEVICES`` changes the numbers of torch but not those of NVML.

    Raises
    ------
    MetricError
        The package is not installed, or the card has no counter.
    """
    try:
        import pynvml
    except ImportError as error:
        raise MetricError(
            f"no meter: pynvml is not installed (pip install nvidia-ml-py); {INSTEAD}"
        ) from error
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(_unique_id(device))
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError as error:
        raise MetricError(
            f"no meter: the card counts no energy ({error}); {INSTEAD}"
        ) from error

    def start() -> Callable[[], float]:
        before = pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
        return lambda: (
            (pynvml.nvmlDeviceGetTotalEnergyConsumption(handle) - before) * 1e-3
        )

    return Meter(f"NVML ({_unique_id(device)})", start)


def _unique_id(device: torch.device) -> str:
    import torch

    return f"GPU-{torch.cuda.get_device_properties(device).uuid}"


def find_meter(device: torch.device) -> Meter:
    """Return the meter of the device on which a network runs.

    Raises
    ------
    MetricError
        There is no meter; the message states the alternatives.
    """
    return nvml(device) if device.type == "cuda" else rapl()
