"""Pack the 160 images of edges of Geirhos et al. unchanged: ``python -m tools.generate.edge_images CHECKOUT [FOLDER]``.

CHECKOUT is a copy of the authors' repository, or of its folder ``stimuli``. ``ATTRIBUTION.md`` of the data set lists the
SHA-256 of every image, and an image that differs from it is refused. The archive in FOLDER (default ``data``) has the same
bytes each time, and its pin is printed.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.generate.write import archive

__all__ = ["build", "manifest"]

ID = "Geirhos2021.edge"
ATTRIBUTION = Path(__file__).parents[1] / ID / "ATTRIBUTION.md"
ROW = re.compile(r"^\| ([\w.-]+\.png) \| ([0-9a-f]{64}) \|", re.MULTILINE)


def manifest(text: str) -> dict[str, str]:
    """Return the SHA-256 of every image by its name, from the text of an attribution.

    >>> manifest("| a.png | " + "0" * 64 + " | https://example.org/a.png |")["a.png"][:4]
    '0000'
    """
    return dict(ROW.findall(text))


def build(checkout: Path, folder: Path, listed: Mapping[str, str]) -> Path:
    """Write ``FOLDER/Geirhos2021.edge/images.zip`` with the images below ``checkout`` that ``listed`` names, and return it.

    Raises
    ------
    ValueError
        No image is listed, an image is not below ``checkout``, or its SHA-256 is another one.
    """
    if not listed:
        raise ValueError("no image is listed: give the rows of ATTRIBUTION.md")
    found = {path.name: path for path in sorted(checkout.rglob("edges/**/*.png"))}
    contents = {}
    for name, sha256 in listed.items():
        if name not in found:
            raise ValueError(
                f"{checkout} has no image edges/…/{name}; check out the commit in ATTRIBUTION.md"
            )
        contents[name] = found[name].read_bytes()
        if hashlib.sha256(contents[name]).hexdigest() != sha256:
            raise ValueError(
                f"{found[name]} is not the image that ATTRIBUTION.md lists; check out its commit"
            )
    path = folder / ID / "images.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    archive(path, contents)
    return path


if __name__ == "__main__":
    written = build(
        Path(sys.argv[1]),
        Path(sys.argv[2]) if len(sys.argv) > 2 else Path("data"),
        manifest(ATTRIBUTION.read_text(encoding="utf-8")),
    )
    content = written.read_bytes()
    print(
        f"{written.name}: {{dvc: true, size: {len(content)}, sha256: {hashlib.sha256(content).hexdigest()}}}"
    )
