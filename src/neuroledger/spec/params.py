"""params.yaml: what to run and how hard, when the command line does not say."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from neuroledger.errors import SpecError
from neuroledger.spec.base import Frozen
from neuroledger.spec.load import explain, load_document

__all__ = ["Params", "read_params"]


class Params(Frozen):
    """The repository's settings."""

    suite: str = "core"
    models: tuple[str, ...] = ()
    seed: Annotated[int, Field(ge=0)] = 0
    device: str = "cpu"


def read_params(root: Path) -> Params:
    """The settings of the repository at ``root``.

    Raises
    ------
    SpecError
        The file is wrong.
    """
    path = root / "params.yaml"
    if not path.is_file():
        return Params()
    document = load_document(path, "params.yaml")
    try:
        return Params.model_validate(document.data)
    except ValidationError as error:
        raise SpecError(explain(error, document, Params)) from None
