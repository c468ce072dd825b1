"""A dandiset is pinned by the SHA-256 that the archive states; a local server simulates the archive."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from neuroledger.errors import RequestError
from neuroledger.families.signals.pinning.import_dandi import import_dandi
from neuroledger.spec.catalog import open_catalog
from tests.data.test_pin import place

__all__ = ["place"]


def asset(path: str, digest: str | None) -> dict[str, Any]:
    told = {"digest": {"dandi:sha2-256": digest}} if digest else {}
    return {"asset_id": f"id-{path[4]}", "path": path, "size": 7, "metadata": told}


@pytest.fixture
def archive() -> Iterator[tuple[str, dict[str, Any]]]:
    answers: dict[str, Any] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path)
            self.send_response(200 if found is not None else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found if found is not None else {}).encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    server.server_close()
    thread.join()


def test_assets_are_pinned_page_by_page(
    place: Path, archive: tuple[str, dict[str, Any]]
) -> None:
    api, answers = archive
    base = "/dandisets/000001/versions/draft"
    answers[f"{base}/"] = {
        "name": "Reaching",
        "license": ["spdx:CC-BY-4.0"],
        "citation": "A. Person (2026)",
    }
    answers[f"{base}/assets/?metadata=true&page_size=1000"] = {
        "results": [
            asset("sub-A/sub-A_ses-1.nwb", "a" * 64),
            asset("sub-A/notes.txt", None),
        ],
        "next": f"{api}/next",
    }
    answers["/next"] = {
        "results": [asset("sub-B/sub-B_ses-1.nwb", "b" * 64)],
        "next": None,
    }
    done = import_dandi(
        open_catalog(place),
        "000001",
        "Reach",
        version="draft",
        window=(0.0, 0.5),
        api=api,
    )
    assert (done.files, done.people) == (2, 2)
    spec = open_catalog(place).dataset("Reach")
    assert spec.license == "CC-BY-4.0"
    assert spec.files["sub-B/sub-B_ses-1.nwb"].sha256 == "b" * 64
    assert (
        spec.files["sub-B/sub-B_ses-1.nwb"].url
        == "https://api.dandiarchive.org/api/assets/id-B/download/"
    )
    assert spec.reader is not None
    assert spec.reader.name == "nwb_trials"


def test_an_asset_without_a_hash_and_a_missing_dandiset_are_refused(
    place: Path, archive: tuple[str, dict[str, Any]]
) -> None:
    api, answers = archive
    with pytest.raises(RequestError, match="answers 404"):
        import_dandi(
            open_catalog(place),
            "000002",
            "No",
            version="draft",
            window=(0.0, 0.5),
            api=api,
        )
    base = "/dandisets/000001/versions/draft"
    answers[f"{base}/"] = {}
    answers[f"{base}/assets/?metadata=true&page_size=1000"] = {
        "results": [asset("sub-A/x.nwb", None)],
        "next": None,
    }
    with pytest.raises(RequestError, match=r"no SHA-256 for sub-A/x\.nwb"):
        import_dandi(
            open_catalog(place),
            "000001",
            "No",
            version="draft",
            window=(0.0, 0.5),
            api=api,
        )
    assert not (place / "specs" / "datasets" / "No.yaml").exists()
