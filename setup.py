"""Metrics and ceilings travel with the package: a wheel holds their specs, for use where there is no repository."""

from pathlib import Path
from shutil import copytree

from setuptools import setup
from setuptools.command.build_py import build_py

KINDS = ("metrics", "ceilings")


class WithDefinitions(build_py):
    """Beside the modules, what the ids of `nl.metric`, `nl.ceiling`, `nl.cost` and `nl.decode` stand for."""

    def run(self) -> None:
        """Build, and copy the specs unless the package is used in place, where they are found."""
        super().run()
        if not self.editable_mode:
            target = Path(self.build_lib) / "neuroledger" / "definitions" / "specs"
            for kind in KINDS:
                copytree(Path("specs") / kind, target / kind, dirs_exist_ok=True)


setup(cmdclass={"build_py": WithDefinitions})
