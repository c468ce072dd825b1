"""Everyday categories as sets of the 1,000 ImageNet classes (0-based, in the usual order)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

CLASSES: Final = 1000


def _indices(text: str) -> tuple[int, ...]:
    """``"8 10-12"`` → ``(8, 10, 11, 12)``."""
    found: list[int] = []
    for part in text.split():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


# The sixteen categories of Geirhos et al. (2018), then those that later experiments added.
CATEGORIES: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        name: _indices(text)
        for name, text in {
            "airplane": "404",
            "bear": "294-297",
            "bicycle": "444 671",
            "bird": "8 10-16 18-20 22-24 80-83 87-96 98-100 127-133 135-145",
            "boat": "472 554 625 814 914",
            "bottle": "440 720 737 898-899 901 907",
            "car": "436 511 817",
            "cat": "281-286",
            "chair": "423 559 765 857",
            "clock": "409 530 892",
            "dog": "152-191 193-203 205-226 228-241 243-250 252-257 259 261-263 265-268",
            "elephant": "385-386",
            "keyboard": "508 878",
            "knife": "499",
            "oven": "766",
            "truck": "555 569 656 675 717 734 864 867",
            "aeroplane": "404 895",
            "banana": "954",
            "beanie": "439 452 515 808",
            "binoculars": "447",
            "boot": "514",
            "bowl": "659 809",
            "bunny": "330-332",
            "bus": "654 779 874",
            "cup": "968",
            "frog": "30-32",
            "glasses": "837",
            "lamp": "470 607 818 846",
            "lizard": "38-48",
            "motorbike": "665 670",
            "pan": "567",
            "sewingmachine": "786",
            "shovel": "792",
            "tiger": "286-293",
            "turtle": "33-37",
            "wolf": "269-275",
        }.items()
    }
)
