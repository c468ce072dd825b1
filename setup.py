"""Specs that need no data travel with the package: a wheel holds them, for use in any repository and in none."""

from pathlib import Path
from runpy import run_path
from shutil import copy

from setuptools import setup
from setuptools.command.build_py import build_py

is_shipped = run_path("src/neuroledger/spec/shipped.py")["is_shipped"]


class WithDefinitions(build_py):
    """Beside the modules, the specs of metrics, ceilings and models that need no files, and the works they cite."""

    def run(self) -> None:
        """Build, and copy the specs unless the package is used in place, where they are found."""
        super().run()
        if self.editable_mode:
            return
        target = Path(self.build_lib) / "neuroledger" / "definitions"
        for path in sorted(Path("specs").rglob("*.yaml")):
            if is_shipped(path.parts[1], path):
                (target / path.parts[1]).mkdir(parents=True, exist_ok=True)
                copy(path, target / path.parts[1] / path.name)
        copy(Path("specs") / "references.bib", target / "references.bib")


setup(cmdclass={"build_py": WithDefinitions})
