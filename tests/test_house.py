"""The house keeps its own rules: layers, a kernel that names no component, public names, folders that are not too wide."""

import ast
import graphlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grimp

import neuroledger
from neuroledger.spec import registry
from tests.long import listed

FACADE = {"__init__.py", "__main__.py", "plot.py"}
KERNEL_MODULES = 204
MODULES_IN_A_FOLDER = 25
# Words that the kernel uses for something else than the component of the same name.
OTHER_MEANINGS = {
    ("spec/base.py", "accuracy"): "a scale",
    ("spec/suites.py", "accuracy"): "a scale",
    ("stats/score.py", "accuracy"): "a scale",
    ("report/plots/__init__.py", "agreement"): "a figure",
    ("report/plots/boards.py", "agreement"): "a figure",
    ("stats/aggregate.py", "formula"): "a dimension of samples",
    ("stats/task_ranks.py", "agreement"): "the agreement of two rankings",
    ("engine/check.py", "properties"): "a key of JSON Schema",
    ("report/opening.py", "decoding"): "a group of benchmarks",
    ("errors.py", "spiking"): "an extra of the package",
    ("errors.py", "onnx"): "an extra of the package",
    ("errors.py", "nir"): "an extra of the package",
    ("report/pareto.py", "synaptic_operations"): "the default axis",
    ("data/gate/rows.py", "recording"): "a coordinate of signals, not the paradigm",
    ("data/clocks.py", "spikes"): "what a clock times",
    ("data/gate/clocks.py", "spikes"): "what a clock times",
    ("data/gate/clocks.py", "recording"): "a coordinate",
    ("testing/inputs.py", "recording"): "a coordinate",
}
INSIDE_TEXT: dict[tuple[str, str], str] = {}


def kernel(repository: Path) -> Iterator[Path]:
    """The modules that may name no component: all but the families, the command line and the facade."""
    package = repository / "src" / "neuroledger"
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        if parts[0] not in {"families", "cli"} and not (
            len(parts) == 1 and parts[0] in FACADE
        ):
            yield path


def components_of_families() -> dict[str, str]:
    """The name of each component that a family of this package registers, with its kind."""
    return {
        name: kind
        for kind in registry.FOLDERS
        for name in registry.names(kind, plugins=False)
        if ".families." in registry.get(kind, name).function.__module__
    }


def test_the_kernel_names_no_component(repository: Path) -> None:
    package, components = repository / "src" / "neuroledger", components_of_families()
    assert len(components) > 100
    found = {
        (
            str(path.relative_to(package)),
            node.value,
        ): f"{path.name}:{node.lineno} names {components[node.value]}"
        for path in kernel(repository)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value in components
    }
    assert set(found) == set(OTHER_MEANINGS), found
    inside = {
        (str(path.relative_to(package)), name)
        for path in kernel(repository)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in re.findall(r"\bname: (\w+)", node.value)
        if name in components
    }
    assert inside == set(INSIDE_TEXT)


def test_no_module_imports_itself_through_others_not_even_inside_a_function() -> None:
    graph = grimp.build_graph("neuroledger", cache_dir=None)
    imports = {
        module: graph.find_modules_directly_imported_by(module)
        for module in graph.modules
    }
    assert len(imports) > 200
    graphlib.TopologicalSorter(
        imports
    ).prepare()  # raises CycleError with the modules of a cycle


def test_the_kernel_is_small(repository: Path) -> None:
    """Its modules are all that are no family's, those of the command line and the facade too."""
    package = repository / "src" / "neuroledger"
    modules = [
        path
        for path in package.rglob("*.py")
        if path.relative_to(package).parts[0] != "families"
    ]
    assert len(modules) <= KERNEL_MODULES


def test_no_folder_holds_more_modules_than_one_can_keep_in_mind(
    repository: Path,
) -> None:
    modules = (
        path
        for path in (repository / "src").rglob("*.py")
        if path.name != "__init__.py"
    )
    folders = Counter(path.parent for path in modules)
    assert not {
        str(folder): count
        for folder, count in folders.items()
        if count > MODULES_IN_A_FOLDER
    }


def test_public_names_exist_and_are_all_there_is() -> None:
    for name in neuroledger.__all__:
        assert getattr(neuroledger, name) is not None
    assert sorted(neuroledger._PUBLIC) == sorted(neuroledger.__all__)


def test_layers_point_down(repository: Path) -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=repository,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_array_types_are_defined_once(repository: Path) -> None:
    package = repository / "src" / "neuroledger"
    definition = re.compile(r"^(Array|Floats)\b[^=\n]*=", re.MULTILINE)
    found = {
        str(path.relative_to(package)): definition.findall(
            path.read_text(encoding="utf-8")
        )
        for path in package.rglob("*.py")
    }
    assert {name: names for name, names in found.items() if names} == {
        "data/arrays.py": ["Array", "Floats"]
    }


def test_every_module_opens_with_a_sentence(repository: Path) -> None:
    bare = [
        str(p)
        for p in sorted((repository / "src").rglob("*.py"))
        if not ast.get_docstring(ast.parse(p.read_text()))
    ]
    assert not bare


def test_the_project_names_no_place_of_any_one_machine(repository: Path) -> None:
    files = subprocess.run(
        ["git", "ls-files"], cwd=repository, capture_output=True, text=True, check=True
    ).stdout.split("\n")
    here = "|".join(
        re.escape(str(path)) for path in (repository, repository.parent / "shared")
    )
    pattern = re.compile(rf"((?<![\w.])/home/\w+|/root/|/Users/\w+|{here})")
    found = []
    for name in files:
        path = repository / name
        if (
            path.suffix in {".py", ".md", ".yaml", ".toml", ".json", ".txt", ""}
            and path.is_file()
            and path.stat().st_size < 1_000_000
        ):
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            if path.name != "test_house.py" and pattern.search(text):
                found.append(name)
    assert not found


def test_every_listed_slow_test_exists(repository: Path) -> None:
    for test in listed():
        file, _, name = test.partition("::")
        tree = ast.parse((repository / file).read_text(encoding="utf-8"))
        functions = {
            node.name for node in tree.body if isinstance(node, ast.FunctionDef)
        }
        assert name.partition("[")[0] in functions, test
