"""Pages in headless Chromium: a script runs in a copy of the page, and its result comes back."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(
    (
        path
        for name in ("chromium", "chromium-browser", "google-chrome")
        if (path := shutil.which(name))
    ),
    None,
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="Chromium is not installed here"
)
PHONE, TABLET, DESK = 390, 768, 1440
RUN = """
addEventListener("load", async () => {
  let found;
  try { found = await (async () => { SCRIPT })(); } catch (error) { found = { error: String(error.stack) }; }
  console.log(`OUTCOME${JSON.stringify(found)}END`);
  const out = document.createElement("pre");
  out.id = "outcome";
  out.textContent = JSON.stringify(found);
  document.body.replaceChildren(out);
});
"""


def evaluate(
    page: Path,
    script: str,
    *,
    hash: str = "",
    width: int = DESK,
    dark: bool = False,
    scripts: tuple[str, ...] = (),
    real_time: bool = False,
) -> Any:
    """What ``script``, the body of an async function, returns in the page at ``width`` pixels.

    It runs in a copy beside the page, without the page's own ban on inline scripts, so that all links stay right.
    Time is virtual, so that nothing waits, unless ``real_time``.
    """
    text = re.sub(
        r'<meta http-equiv="Content-Security-Policy"[^>]*>',
        "",
        page.read_text(encoding="utf-8"),
    )
    frame = (
        f"<style>html {{ width: {width}px; overflow-x: clip }}</style>"
        if width < 500
        else ""
    )
    added = "".join(
        f"<script>{each}</script>" for each in (*scripts, RUN.replace("SCRIPT", script))
    )
    copy = page.with_name(f"copy-of-{page.name}")
    copy.write_text(
        text.replace("</head>", f"{frame}</head>").replace(
            "</body>", f"{added}</body>"
        ),
        encoding="utf-8",
    )
    words = [
        str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
        "--enable-logging=stderr", f"--window-size={max(width, 500)},1000",
        *([] if real_time else ["--virtual-time-budget=20000", "--dump-dom"]),
        f"--blink-settings=preferredColorScheme={0 if dark else 1}", f"{copy.resolve().as_uri()}{hash}",
    ]  # fmt: skip
    browser = subprocess.Popen(
        words,
        stdout=subprocess.PIPE if not real_time else None,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        if real_time:
            stream = browser.stderr
            assert stream is not None
            said = next((line for line in stream if "OUTCOME" in line), "")
            found = re.search(r"OUTCOME(.*?)END", said)
        else:
            out, _ = browser.communicate(timeout=120)
            found = re.search(r'<pre id="outcome">(.*?)</pre>', out, re.DOTALL)
    finally:
        browser.kill()
        browser.communicate()
        copy.unlink()
    assert found, "no outcome"
    outcome = json.loads(unescape(found.group(1)))
    assert not (isinstance(outcome, dict) and "error" in outcome), outcome["error"]
    return outcome
