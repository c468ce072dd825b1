"""Word vectors of a spaCy package: the mean of the vectors of a text's words, independent of context."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, Final

import numpy as np

from neuroledger.data.sandbox import confined, limits_for
from neuroledger.errors import ModelError
from neuroledger.models.embedder import Embedded, Embedder, Shown, Tell
from neuroledger.models.torch_module import require, version_of
from neuroledger.models.torch_weights import weights_identity
from neuroledger.spec.registry import builder

CONFIG: Final = "config.cfg"
NEEDED: Final = (CONFIG, "meta.json", "tokenizer", "vocab")
"""The parts of a package that are read: its vocabulary and tokenizer, but no networks and no code."""

MOST_BYTES: Final = 8 << 30


@builder("word_vectors", version=1, takes={"text"}, gives={"embeddings"})
def word_vectors(*, id: str, weights: Mapping[str, Path] | None = None) -> Embedder:
    """The vectors of one spaCy package, whose wheel is pinned under ``weights``.

    A word without a vector counts as zeros; a text that has only such words is zeros.
    """
    files = dict(weights or {})
    if len(files) != 1:
        raise ModelError(
            f"model {id!r}: pin one spaCy package, a wheel, under `weights`; there are {len(files)}"
        )
    (path,) = files.values()
    spacy = require("spacy", "words")
    # A language cannot be passed between processes. It is first read in a sandbox, to see that it is safe, then here.
    confined(
        lambda: _loaded(spacy, path, id) is None,
        limits_for([path]),
        f"model {id!r}: {path.name}",
    )
    language = _loaded(spacy, path, id)
    if not language.vocab.vectors_length:
        raise ModelError(
            f"model {id!r}: {path.name} has no word vectors: pin a package whose name ends in md or lg"
        )

    def embed(
        stimuli: Sequence[Shown], requested: tuple[int, ...] | None, tell: Tell
    ) -> Embedded:
        if requested is not None:
            raise ModelError(f"model {id!r} has word vectors, not layers: omit --layer")
        rows = np.stack(
            [
                np.asarray(language.make_doc(text.text).vector, dtype=np.float32)
                for text in stimuli
            ]
        )
        tell(len(stimuli))
        unknown = [
            text.text for text, row in zip(stimuli, rows, strict=True) if not row.any()
        ]
        notes = (
            (
                f"{len(unknown)} texts have no vector and are zeros, first {unknown[0]!r}",
            )
            if unknown
            else ()
        )
        return Embedded(rows, notes)

    description = {
        "weights": weights_identity(files),
        "packages": {"spacy": version_of("spacy")},
        "words": "mean",
    }
    return Embedder(id=id, shown="text", embed=embed, described=description)


def _loaded(spacy: ModuleType, path: Path, model: str) -> Any:
    with tempfile.TemporaryDirectory() as place:
        try:
            with zipfile.ZipFile(path) as wheel:
                folder = _folder(wheel, path, model)
                if sum(member.file_size for member in wheel.infolist()) > MOST_BYTES:
                    raise ModelError(
                        f"model {model!r}: {path.name} unpacks to more than {MOST_BYTES >> 30} GiB"
                    )
                for name in wheel.namelist():
                    member = PurePosixPath(name)
                    if any(member.is_relative_to(folder / part) for part in NEEDED):
                        wheel.extract(name, place)
            config = spacy.util.load_config(Path(place, folder, CONFIG))
            return spacy.load(
                Path(place, folder), exclude=list(config["nlp"]["pipeline"])
            )
        except (zipfile.BadZipFile, OSError, KeyError, ValueError) as error:
            raise ModelError(
                f"model {model!r}: {path.name} cannot be read as a spaCy package ({error})"
            ) from error


def _folder(wheel: zipfile.ZipFile, path: Path, model: str) -> PurePosixPath:
    """The folder of the package's data."""
    folders = [
        PurePosixPath(name).parent
        for name in wheel.namelist()
        if PurePosixPath(name).name == CONFIG
    ]
    if len(folders) != 1:
        raise ModelError(
            f"model {model!r}: {path.name} is not the wheel of a spaCy package: it has no {CONFIG}"
        )
    return folders[0]
