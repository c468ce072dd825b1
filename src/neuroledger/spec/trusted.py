"""Import paths in specs: decide from source text, before anything is imported, which classes a spec may name."""

from __future__ import annotations

import ast
import importlib
import importlib.machinery
import importlib.util
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, GetCoreSchemaHandler, JsonValue, StringConstraints
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from neuroledger.errors import EXTRAS, UnavailableError, UntrustedError, package_missing

__all__ = [
    "SKLEARN", "TORCH", "UNTRUSTED", "Arguments", "EstimatorPath", "ModulePath", "owner_trusts", "trusted",
]  # fmt: skip

# Pydantic's error type for everything that this module refuses.
UNTRUSTED: Final = "untrusted"
VARIABLE: Final = "NEUROLEDGER_TRUSTED"
PROJECT: Final = "neuroledger"
SETTING: Final = f"the owner of a machine trusts further packages with {VARIABLE} (docs/models.md)"
DEPTH: Final = 30
# Arguments that make classes of trusted packages read or write files, unpickle them, or download code and weights.
REACHING: Final = frozenset(
    {"memory", "cachedir", "cache_dir", "checkpoint", "checkpoint_path", "pretrained", "hf_hub", "name_or_path", "auto_map",
     "pretrained_model_name_or_path", "trust_remote_code", "attn_implementation", "experts_implementation", "backbone"}
)  # fmt: skip


@dataclass(frozen=True)
class _Place:
    module: str
    name: str


@dataclass(frozen=True)
class ImportPath:
    """Annotation of a parameter that is an import path, ``package.module.Class`` or ``package.module:Class``.

    Attributes
    ----------
    kind
        The required kind of class, in words.
    base
        The required base class, by the module that defines it.
    packages
        Packages that may define such classes, in addition to the project and to what the owner of the machine trusts.
    """

    kind: Literal["torch module", "scikit-learn estimator"]
    base: _Place
    packages: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._validated, handler(source))

    def _validated(self, path: str) -> str:
        reason = self.refusal(path)
        if reason is not None:
            raise PydanticCustomError(UNTRUSTED, "{reason}", {"reason": reason})
        return path

    def refusal(self, path: str) -> str | None:
        """Why the path is refused, or None; sources are read, and nothing is imported."""
        module, name = _divided(path)
        if not all(part.isidentifier() for part in [*module.split("."), name]) or not module:
            return f"{path!r} is not an import path: write package.module.Class"
        allowed = (*self.packages, PROJECT, *owner_trusts())
        if not _within(module, allowed):
            return f"{path!r} is outside the trusted packages ({', '.join(allowed)}); {SETTING}"
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            return None  # the package is not installed, which is reported when the path is resolved
        if importlib.util.find_spec(self.base.module.partition(".")[0]) is None:
            return None  # nor is the package of the base class: nothing is imported before it is installed
        definition = _find_definition(module, name)
        if definition is None:
            return f"{path!r} is not a {self.kind}: {module} defines no class {name!r}"
        place, node = definition
        if not _within(place.module, (*allowed, self.base.module.partition(".")[0])):
            return f"{path!r} is defined in {place.module}, which is not trusted; {SETTING}"
        if isinstance(node, ast.ClassDef):
            if not _is_derived(definition, self.base):
                return f"{path!r} is not a {self.kind}: its class is not derived from {self.base.module}.{self.base.name}"
            return None
        # Only the project's own functions that are annotated to return such a class are called.
        if _within(place.module, (PROJECT,)) and node.returns is not None:
            returned = _resolve_expression(place.module, node.returns)
            if returned is not None and _is_derived(returned, self.base):
                return None
        return f"{path!r} is a function, not a {self.kind}"

    def resolve(self, path: str) -> Any:
        """Import the class at the path, after checking that it is trusted.

        Raises
        ------
        UntrustedError
            The path is refused.
        UnavailableError
            The package is not installed.
        """
        reason = self.refusal(path)
        if reason is not None:
            raise UntrustedError(reason)
        module, name = _divided(path)
        package = module.partition(".")[0]
        if importlib.util.find_spec(package) is None:
            raise UnavailableError(f"{path!r} needs the package {package!r}, which is not installed")
        needed = self.base.module.partition(".")[0]
        if importlib.util.find_spec(needed) is None:
            raise (
                package_missing(needed)
                if needed in EXTRAS
                else UnavailableError(f"{path!r} needs {needed!r}")
            )
        try:
            base = getattr(importlib.import_module(self.base.module), self.base.name)
            value = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, RuntimeError, OSError) as error:
            raise UnavailableError(f"{path!r} cannot be imported: {error}") from error
        is_class = isinstance(value, type)
        own_function = getattr(value, "__module__", "").partition(".")[0] == PROJECT and not is_class
        if not own_function and not (is_class and issubclass(value, base)):
            raise UntrustedError(f"{path!r} is not a {self.kind}")
        return value


TORCH: Final = ImportPath(
    "torch module",
    _Place("torch.nn.modules.module", "Module"),
    ("torch.nn", "torchvision.models", "timm.models", "timm.layers", "transformers"),
)
SKLEARN: Final = ImportPath("scikit-learn estimator", _Place("sklearn.base", "BaseEstimator"), ("sklearn",))
_Path = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$")]
ModulePath = Annotated[_Path, TORCH]
EstimatorPath = Annotated[_Path, SKLEARN]


def trusted(path: str, kind: ImportPath, model: str) -> Any:
    """Import the class at a spec's import path; errors name ``model``; see :meth:`ImportPath.resolve`."""
    try:
        return kind.resolve(path)
    except (UntrustedError, UnavailableError) as error:
        raise type(error)(f"model {model!r}: {error.message}", error.command) from error


def _refuse_reaching(arguments: Any) -> Any:
    """Refuse arguments that make a trusted class read files, unpickle or download."""
    pending = [arguments]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            for name, inner in value.items():
                # Nested parameters are written `step__memory`; names with a leading underscore are private.
                if inner and (name.startswith("_") or name.rpartition("__")[2] in REACHING):
                    words = (
                        f"the argument {name!r} can read files or downloads that are not pinned: remove it"
                    )
                    raise PydanticCustomError(UNTRUSTED, "{reason}", {"reason": words})
                pending.append(inner)
        elif isinstance(value, list):
            pending += value
    return arguments


Arguments = Annotated[dict[str, JsonValue], AfterValidator(_refuse_reaching)]


def owner_trusts() -> tuple[str, ...]:
    """Packages that the owner of this machine trusts, from the environment variable; a spec cannot add to them."""
    return tuple(name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip())


def _divided(path: str) -> tuple[str, str]:
    module, _, name = path.replace(":", ".", 1).rpartition(".")
    return module, name


def _within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@lru_cache(maxsize=2048)
def _source(module: str) -> tuple[Path, ast.Module] | None:
    """File and syntax tree of a module, located without importing its parent packages."""
    parts = module.split(".")
    spec = importlib.util.find_spec(parts[0])
    for count in range(2, len(parts) + 1):
        folders = None if spec is None else spec.submodule_search_locations
        if folders is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(".".join(parts[:count]), list(folders))
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return None
    try:
        path = Path(spec.origin)
        return path, ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        for inner in ("body", "orelse", "finalbody"):
            if isinstance(statement, (ast.If, ast.Try)):
                yield from _statements(getattr(statement, inner, []))


Definition = tuple[_Place, "ast.ClassDef | ast.FunctionDef"]


@lru_cache(maxsize=4096)
def _find_definition(module: str, name: str, depth: int = 0) -> Definition | None:
    """The definition of a class or function in a module, followed through imports; None for anything else."""
    source = _source(module)
    if source is None or depth > DEPTH:
        return None
    path, tree = source
    star_imports: list[str] = []
    definition: Definition | None = None
    for statement in _statements(tree.body):
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)) and statement.name == name:
            definition = _Place(module, name), statement
        elif isinstance(statement, ast.ImportFrom):
            origin = _origin(module, path, statement)
            for alias in statement.names:
                if alias.name == "*":
                    star_imports.append(origin)
                elif (alias.asname or alias.name) == name:
                    definition = _find_definition(origin, alias.name, depth + 1)
    if definition is not None:
        return definition
    candidates = (_find_definition(star, name, depth + 1) for star in star_imports)
    return next((candidate for candidate in candidates if candidate is not None), None)


def _origin(module: str, path: Path, statement: ast.ImportFrom) -> str:
    if not statement.level:
        return statement.module or ""
    package = module.split(".")[: None if path.name == "__init__.py" else -1]
    package = package[: len(package) - statement.level + 1]
    return ".".join([*package, *([statement.module] if statement.module else [])])


def _resolve_expression(module: str, node: ast.expr) -> Definition | None:
    """The definition that an expression such as ``Module`` or ``nn.Module`` refers to in a module."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if isinstance(node, ast.Name):
        return _find_definition(module, node.id)
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.insert(0, node.attr)
        node = node.value
    source = _source(module)
    if not isinstance(node, ast.Name) or not attributes or source is None:
        return None
    for statement in _statements(source[1].body):
        for alias in statement.names if isinstance(statement, (ast.Import, ast.ImportFrom)) else ():
            if (alias.asname or alias.name.partition(".")[0]) != node.id:
                continue
            imported = alias.name if alias.asname else node.id
            if isinstance(statement, ast.ImportFrom):
                imported = f"{_origin(module, source[0], statement)}.{alias.name}"
            return _find_definition(".".join([imported, *attributes[:-1]]), attributes[-1])
    return None


def _is_derived(definition: Definition, base: _Place, depth: int = 0) -> bool:
    """Whether a class is ``base`` or derived from it, directly or through other classes."""
    place, node = definition
    if place == base:
        return True
    if depth > DEPTH or not isinstance(node, ast.ClassDef):
        return False
    bases = (_resolve_expression(place.module, expression) for expression in node.bases)
    return any(parent is not None and _is_derived(parent, base, depth + 1) for parent in bases)
