"""Runs in Brain-Score's own environment: opens exports of this repository with the peer's loaders, and compares originals.

``python -m tests.parity.exported FOLDER`` reads ``FOLDER/jobs.json``, ``FOLDER/packages`` and ``FOLDER/exported/KEY``, and
writes ``FOLDER/exported.json``: for each key `equal`, or the differences. It compares dimensions, values, all coordinates
of the original with its merged stimuli, attributes, columns of the stimulus tables, and the bytes of the files. An
export may contain more: ids of neuroids that had none, the identifier, the degrees of the stimuli.
"""

import json
import sys
import warnings
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from brainscore_core.supported_data_standards.brainio.assemblies import (
    AssemblyLoader,
    DataAssembly,
    StimulusMergeAssemblyLoader,
    walk_coords,
)
from brainscore_core.supported_data_standards.brainio.stimuli import (
    StimulusSet,
    StimulusSetLoader,
)

warnings.filterwarnings("ignore")


def stimuli(table, archive, folder):
    """A stimulus set by their loader, which needs all files of the table, and the bytes of each stimulus."""
    with zipfile.ZipFile(archive) as held:
        held.extractall(folder)
    found = StimulusSetLoader(
        csv_path=table, stimuli_directory=folder, cls=StimulusSet
    ).load()
    return found, {
        id: Path(found.get_stimulus(id)).read_bytes() for id in found["stimulus_id"]
    }


def same(one, other):
    """Whether two arrays are equal; missing values are equal, and the width of numbers does not matter."""
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        return False
    kinds = "biuf"
    if one.dtype.kind in kinds and other.dtype.kind in kinds:
        return bool(
            np.array_equal(
                one, other, equal_nan=one.dtype.kind == other.dtype.kind == "f"
            )
        )
    missing = [pd.isnull(side) for side in (one, other)]
    return bool(
        (missing[0] == missing[1]).all()
        and (one[~missing[0]] == other[~missing[1]]).all()
    )


def of_sets(first, again):
    """The differences between two stimulus sets."""
    (table, files), (other, others) = first, again
    if list(table["stimulus_id"]) != list(other["stimulus_id"]):
        return ["ids of stimuli"]
    found = [
        f"column {name}"
        for name in table.columns
        if name not in other or not same(table[name], other[name])
    ]
    return found + ([] if files == others else ["bytes of stimuli"])


def of_assemblies(first, again):
    """The differences between two assemblies."""
    if sorted(first.dims) != sorted(again.dims):
        return [f"dimensions {first.dims} and {again.dims}"]
    twice = len(set(first.dims)) < first.ndim
    values = first.values if twice else first.transpose(*again.dims).values
    found = [] if same(values, again.values) else ["values"]
    held = {name: values for name, _, values in walk_coords(again)}
    for name, _, values in walk_coords(first):
        if name not in held or not same(values, held[name]):
            found.append(f"coordinate {name}")
    plain = {key: value for key, value in first.attrs.items() if key != "stimulus_set"}
    for key, value in plain.items():
        if key not in again.attrs or not same(value, again.attrs[key]):
            found.append(f"attribute {key}")
    return found


def compared(packages, names, exported):
    """The differences between a package and its export."""
    table, archive, own = (names.get(kind) for kind in ("csv", "zip", "nc"))
    found, sets = [], [None, None]
    with TemporaryDirectory() as one, TemporaryDirectory() as two:
        if table:
            written = [
                next(exported.glob(f"stimulus_*.{kind}")) for kind in ("csv", "zip")
            ]
            first, again = (
                stimuli(packages / table, packages / archive, one),
                stimuli(*written, two),
            )
            found += of_sets(first, again)
            sets = [first[0], again[0]]
    if own:
        files = [packages / own, next(exported.glob("assy_*.nc"))]
        plain = [
            AssemblyLoader(cls=DataAssembly, file_path=str(path)).load()
            for path in files
        ]
        found += of_assemblies(*plain)
        if (
            table
            and "presentation" in plain[0].dims
            and len(set(plain[0].dims)) == plain[0].ndim
        ):
            merged = [
                StimulusMergeAssemblyLoader(
                    cls=DataAssembly,
                    file_path=str(path),
                    stimulus_set_id="",
                    stimulus_set=held,
                ).load()
                for path, held in zip(files, sets, strict=True)
            ]
            found += [f"{said} with its stimuli" for said in of_assemblies(*merged)]
    return found


def main(folder):
    """Compare each exported package."""
    asked = json.loads((folder / "jobs.json").read_text())
    result = {}
    for exported in sorted((folder / "exported").iterdir()):
        key = exported.name
        own = asked["assemblies"].get(key)
        names = dict(
            asked["stimuli"].get(asked["sets"].get(key) or ("" if own else key), {})
        )
        try:
            found = compared(
                folder / "packages", names | ({"nc": own} if own else {}), exported
            )
        except Exception as error:
            found = [f"does not open: {type(error).__name__}: {str(error)[:120]}"]
        result[key] = ", ".join(dict.fromkeys(found)) or "equal"
    (folder / "exported.json").write_text(json.dumps(result, indent=1))
    return any(said != "equal" for said in result.values())


if __name__ == "__main__":
    sys.exit(int(main(Path(sys.argv[1]))))
