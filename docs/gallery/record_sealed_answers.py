"""Keep the answers of a benchmark secret.

The owner seals a table of answers. The specification states the hash, and how much all looks at the
answers together can tell.
"""

import tempfile
from pathlib import Path

from neuroledger.engine.sealed.judge import seal

with tempfile.TemporaryDirectory() as folder:
    table = Path(folder, "answers.csv")
    rows = [f"image{number},{number % 2}" for number in range(1000)]
    table.write_text("\n".join(["stimulus_id,answer", *rows]), encoding="utf-8")
    sealed = seal(table, Path(folder, "sealed.json"), steps=20, looks=10_000)
print(sealed.items, "answers,", sealed.looks, "looks,", sealed.steps, "steps")
