"""Import of a dandiset as a pinned spec, by the SHA-256 that DANDI states for each asset; no asset is downloaded."""

from __future__ import annotations

import json
from typing import Any

import urllib3

from neuroledger.data.pin.downloads import place_of
from neuroledger.data.pin.yaml_edit import inline
from neuroledger.errors import RequestError
from neuroledger.families.signals.pinning.import_tree import Imported, spdx
from neuroledger.spec.catalog import Catalog
from neuroledger.spec.document import parse
from neuroledger.spec.load import spec_of
from neuroledger.store.files import write_text

__all__ = ["API", "import_dandi"]

API = "https://api.dandiarchive.org/api"
DIGEST = "dandi:sha2-256"


def import_dandi(
    catalog: Catalog,
    id: str,
    dataset: str,
    *,
    version: str,
    window: tuple[float, float],
    api: str = API,
) -> Imported:
    """Pin the NWB files of a version of dandiset `id` as a new data set, read by their trials.

    Raises
    ------
    RequestError
        The data set exists, the archive does not answer, or an asset has no SHA-256.
    """
    if catalog.has("datasets", dataset):
        raise RequestError(
            f"there is already a data set {dataset!r}: choose another id"
        )
    base = f"{api}/dandisets/{id}/versions/{version}"
    dandiset = _answer(f"{base}/")
    assets: list[dict[str, Any]] = []
    address: str | None = f"{base}/assets/?metadata=true&page_size=1000"
    while address:
        page = _answer(address)
        assets += page["results"]
        address = page.get("next")
    pins = {}
    people = set[str]()
    for asset in sorted(assets, key=lambda item: str(item["path"])):
        if not asset["path"].endswith(".nwb"):
            continue
        metadata = asset.get("metadata") or {}
        digest = (metadata.get("digest") or {}).get(DIGEST)
        if digest is None:
            raise RequestError(
                f"{id}: DANDI states no SHA-256 for {asset['path']} yet: try again later"
            )
        url = f"{API}/assets/{asset['asset_id']}/download/"
        pins[place_of(asset["path"])] = {
            "url": url,
            "size": asset["size"],
            "sha256": digest,
        }
        people.add(asset["path"].split("/")[0].removeprefix("sub-"))
    if not pins:
        raise RequestError(f"dandiset {id} has no NWB file in version {version}")
    licences = [
        str(name).removeprefix("spdx:")
        for name in dandiset.get("license") or ["unknown"]
    ]
    start, duration = window
    title = json.dumps(
        f"{dandiset.get('name', id)}, from DANDI {id}"[:200], ensure_ascii=False
    )
    citation = json.dumps(
        str(dandiset.get("citation") or f"DANDI {id}/{version}"), ensure_ascii=False
    )
    lines = [
        "# yaml-language-server: $schema=../schema/dataset.json",
        f"id: {dataset}",
        "version: 1",
        f"title: {title}",
        f"description: {citation}",
        f"license: {spdx(licences[0])}",
        f'source: "https://dandiarchive.org/dandiset/{id}/{version}"',
        "files:",
        *(f"  {name}: {inline(pin)}" for name, pin in pins.items()),
        "reader:",
        "  name: nwb_trials",
        f"  window: {inline({'start': start, 'duration': duration})}",
        "expectations:",
        "  assembly:",
        "    - {check: dims, dims: [presentation, channel, sample]}",
        "    - {check: values_finite}",
        f"    - {{check: distinct, column: subject, count: {len(people)}}}",
    ]
    path = catalog.root / "specs" / "datasets" / f"{dataset}.yaml"
    text = "\n".join(lines) + "\n"
    spec_of(parse(text, catalog.shown(path)), "datasets", stem=dataset)
    write_text(path, text)
    return Imported(
        path, len(pins), sum(pin["size"] for pin in pins.values()), len(people), {}, ()
    )


def _answer(address: str) -> dict[str, Any]:
    """The JSON object at an address of the archive."""
    try:
        answer = urllib3.request("GET", address, timeout=60.0, retries=3)
        content = json.loads(answer.data)
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        raise RequestError(f"{address} does not answer with JSON ({error})") from error
    if answer.status != 200 or not isinstance(content, dict):
        raise RequestError(
            f"{address} answers {answer.status}: check the dandiset's id and version"
        )
    return content
