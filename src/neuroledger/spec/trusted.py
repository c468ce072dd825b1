"""Import paths in specs: which classes a spec may name, decided from source text before anything is imported."""

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

from neuroledger.errors import UnavailableError, UntrustedError

__all__ = [
    "SKLEARN", "TORCH", "UNTRUSTED", "Arguments", "EstimatorPath", "ModulePath", "owner_trusts", "trusted",
]  # fmt: skip

# Type of pydantic's error for whatever this module refuses.
UNTRUSTED: Final = "untrusted"
VARIABLE: Final = "NEUROLEDGER_TRUSTED"
PROJECT: Final = "neuroledger"
SETTING: Final = f"the owner of a machine trusts further packages with {VARIABLE} (docs/models.md)"
DEPTH: Final = 30
# Arguments by which classes of trusted packages read or write files, unpickle them, or download code and weights.
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
        What the class must be, in words.
    base
        The class from which it must be derived, where that class is defined.
    packages
        Where such classes may be defined, besides the project and what the owner of the machine trusts.
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
        """Why the path may not be named, or None; sources are read, and nothing is imported."""
        module, name = _divided(path)
        if not all(part.isidentifier() for part in [*module.split("."), name]) or not module:
            return f"{path!r} is not an import path: write package.module.Class"
        allowed = (*self.packages, PROJECT, *owner_trusts())
        if not _within(module, allowed):
            return f"{path!r} is outside the trusted packages ({', '.join(allowed)}); {SETTING}"
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            return None  # reported at run: the package is not installed
        found = _defined(module, name)
        if found is None:
            return f"{path!r} is not a {self.kind}: {module} defines no class {name!r}"
        place, node = found
        if not _within(place.module, (*allowed, self.base.module.partition(".")[0])):
            return f"{path!r} is defined in {place.module}, which is not trusted; {SETTING}"
        if isinstance(node, ast.ClassDef):
            if not _derived(place, node, self.base):
                return f"{path!r} is not a {self.kind}: its class is not derived from {self.base.module}.{self.base.name}"
            return None
        # The project's own functions that are declared to build one; a function elsewhere is never called.
        if _within(place.module, (PROJECT,)) and node.returns is not None:
            made = _named(place.module, node.returns)
            if made is not None and (made[0] == self.base or _derives(made, self.base)):
                return None
        return f"{path!r} is a function, not a {self.kind}"

    def resolve(self, path: str) -> Any:
        """The class at the path, imported now that it is known to be trusted.

        Raises
        ------
        UntrustedError
            The path names something that a spec may not name.
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
        try:
            found = getattr(importlib.import_module(module), name)
            base = getattr(importlib.import_module(self.base.module), self.base.name)
        except (ImportError, AttributeError, RuntimeError, OSError) as error:
            raise UnavailableError(f"{path!r} cannot be imported: {error}") from error
        own = getattr(found, "__module__", "").partition(".")[0] == PROJECT and not isinstance(found, type)
        if not own and not (isinstance(found, type) and issubclass(found, base)):
            raise UntrustedError(f"{path!r} is not a {self.kind}")
        return found


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
    """What a spec's import path names, for ``model``; see :meth:`ImportPath.resolve`."""
    try:
        return kind.resolve(path)
    except (UntrustedError, UnavailableError) as error:
        raise type(error)(f"model {model!r}: {error}") from error


def _plain(arguments: Any) -> Any:
    """Arguments of a trusted class, none of which makes it read files, unpickle or download."""
    ahead = [arguments]
    while ahead:
        value = ahead.pop()
        if isinstance(value, dict):
            for name, inner in value.items():
                # Nested parameters are written `step__memory`; names with an underscore in front are private.
                if inner and (name.startswith("_") or name.rpartition("__")[2] in REACHING):
                    words = f"the argument {name!r} reaches files or downloads that nothing pins"
                    raise PydanticCustomError(UNTRUSTED, "{reason}", {"reason": words})
                ahead.append(inner)
        elif isinstance(value, list):
            ahead += value
    return arguments


Arguments = Annotated[dict[str, JsonValue], AfterValidator(_plain)]


def owner_trusts() -> tuple[str, ...]:
    """Packages that the owner of this machine trusts, from the environment; a spec cannot add any."""
    return tuple(name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip())


def _divided(path: str) -> tuple[str, str]:
    module, _, name = path.replace(":", ".", 1).rpartition(".")
    return module, name


def _within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in packages)


@lru_cache(maxsize=2048)
def _source(module: str) -> tuple[Path, ast.Module] | None:
    """File and syntax tree of a module, found without importing any package above it."""
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
def _defined(module: str, name: str, depth: int = 0) -> Definition | None:
    """Where a class or function of a module is defined, through imports; None for anything else."""
    source = _source(module)
    if source is None or depth > DEPTH:
        return None
    path, tree = source
    stars: list[str] = []
    found: Definition | None = None
    for statement in _statements(tree.body):
        if isinstance(statement, (ast.ClassDef, ast.FunctionDef)) and statement.name == name:
            found = _Place(module, name), statement
        elif isinstance(statement, ast.ImportFrom):
            origin = _origin(module, path, statement)
            for alias in statement.names:
                if alias.name == "*":
                    stars.append(origin)
                elif (alias.asname or alias.name) == name:
                    found = _defined(origin, alias.name, depth + 1)
    if found is not None:
        return found
    return next((one for star in stars if (one := _defined(star, name, depth + 1)) is not None), None)


def _origin(module: str, path: Path, statement: ast.ImportFrom) -> str:
    if not statement.level:
        return statement.module or ""
    package = module.split(".")[: None if path.name == "__init__.py" else -1]
    package = package[: len(package) - statement.level + 1]
    return ".".join([*package, *([statement.module] if statement.module else [])])


def _named(module: str, node: ast.expr) -> Definition | None:
    """The definition that an expression such as ``Module`` or ``nn.Module`` names in a module."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        node = ast.parse(node.value, mode="eval").body
    if isinstance(node, ast.Name):
        return _defined(module, node.id)
    words: list[str] = []
    while isinstance(node, ast.Attribute):
        words.insert(0, node.attr)
        node = node.value
    source = _source(module)
    if not isinstance(node, ast.Name) or not words or source is None:
        return None
    for statement in _statements(source[1].body):
        for alias in statement.names if isinstance(statement, (ast.Import, ast.ImportFrom)) else ():
            if (alias.asname or alias.name.partition(".")[0]) != node.id:
                continue
            whole = alias.name if alias.asname or isinstance(statement, ast.ImportFrom) else node.id
            if isinstance(statement, ast.ImportFrom):
                whole = f"{_origin(module, source[0], statement)}.{alias.name}"
            return _defined(".".join([whole, *words[:-1]]), words[-1])
    return None


def _derives(found: Definition, base: _Place) -> bool:
    place, node = found
    return isinstance(node, ast.ClassDef) and _derived(place, node, base)


def _derived(place: _Place, node: ast.ClassDef, base: _Place, depth: int = 0) -> bool:
    if place == base:
        return True
    if depth > DEPTH:
        return False
    above = [_named(place.module, each) for each in node.bases]
    return any(
        _derived(one[0], one[1], base, depth + 1)
        for one in above
        if one is not None and isinstance(one[1], ast.ClassDef)
    )
