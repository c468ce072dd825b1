"""Tests that a reader's output for pinned files does not change without a new version, by stored content hashes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuroledger.data.assembly import content_sha256
from neuroledger.data.load import load_dataset
from neuroledger.spec.registry import get

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "readers.json").read_text())


def _found(catalog, id):
    data = load_dataset(catalog, id)
    reader = catalog.dataset(id).reader.name
    return {
        "reader": reader,
        "version": get("reader", reader).version,
        "assembly": content_sha256(data.assembly),
        "stimuli": data.stimuli.content_sha256 if data.stimuli is not None else None,
    }


@pytest.mark.parametrize("id", sorted(GOLDEN["embedded"]))
def test_embedded_data_read_the_same(catalog, id):
    assert _found(catalog, id) == GOLDEN["embedded"][id]
