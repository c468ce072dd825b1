"""Runs in Brain-Score's own environment: what this repository exports, opened by the peer's loaders beside the originals.

``python -m tests.parity.exported PACKAGES FOLDER…``: each folder is a data set as `neuroledger export brainscore` wrote it.
Prints one row for each assembly; exits 1 where one does not open, or differs from the package that was imported.
"""

import sys
import warnings
import zipfile
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
from brainscore_core.supported_data_standards.brainio.assemblies import (
    AssemblyLoader,
    DataAssembly,
    StimulusMergeAssemblyLoader,
)
from brainscore_core.supported_data_standards.brainio.stimuli import StimulusSet, StimulusSetLoader

warnings.filterwarnings("ignore")


def stimuli(folder, stem):
    """A stimulus set by their loader, which asks for every file of the table."""
    archive = folder / f"stimulus_{stem}.zip"
    images = Path(mkdtemp())
    with zipfile.ZipFile(archive) as held:
        held.extractall(images)
    table = folder / f"stimulus_{stem}.csv"
    found = StimulusSetLoader(csv_path=table, stimuli_directory=images, cls=StimulusSet).load()
    found.identifier = found.name = stem
    for id in found["stimulus_id"]:
        assert Path(found.get_stimulus(id)).is_file(), f"{stem}: no file of stimulus {id}"
    return found


def main(packages, folders):
    """Each assembly of each folder."""
    wrong = 0
    for folder in folders:
        sets = sorted(path.stem.removeprefix("stimulus_") for path in folder.glob("stimulus_*.csv"))
        for path in sorted(folder.glob("assy_*.nc")):
            try:
                tables = {stem: stimuli(folder, stem) for stem in sets}
                plain = AssemblyLoader(cls=DataAssembly, file_path=str(path)).load()
                own = path.stem.removeprefix("assy_")
                if own in tables and "presentation" in plain.dims:
                    StimulusMergeAssemblyLoader(
                        cls=DataAssembly, file_path=str(path), stimulus_set_id=own, stimulus_set=tables[own]
                    ).load()
                original = packages / path.name
                said = f"opens: {dict(plain.sizes)}, {len(tables)} stimulus sets"
                if original.is_file():
                    first = AssemblyLoader(cls=DataAssembly, file_path=str(original)).load()
                    same = sorted(first.dims) == sorted(plain.dims) and first.size == plain.size
                    if same and len(set(first.dims)) == first.ndim:
                        values = first.transpose(*plain.dims).values
                        same = (
                            bool((values == plain.values).all())
                            if values.dtype.kind in "OU"
                            else bool(np.array_equal(values, plain.values, equal_nan=True))
                        )
                    said += ", values equal the original's" if same else ", VALUES DIFFER"
                    wrong += not same
            except Exception as error:
                said, wrong = f"does not open: {type(error).__name__}: {str(error)[:200]}", wrong + 1
            sys.stdout.write(f"{folder.name} {path.name}: {said}\n")
    return wrong


if __name__ == "__main__":
    sys.exit(int(bool(main(Path(sys.argv[1]), [Path(one) for one in sys.argv[2:]]))))
