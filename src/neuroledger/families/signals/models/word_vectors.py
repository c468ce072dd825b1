"""Word vectors of a spaCy package: the mean of the vectors of a text's words, whatever stands around it."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
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
"""What of a package is read: words and how texts are cut into them, none of its networks and no code."""

MOST_BYTES: Final = 8 << 30


@builder("word_vectors", version=1, takes={"text"}, gives={"embeddings"})
def word_vectors(*, id: str, weights: Mapping[str, Path] | None = None) -> Embedder:
    """The vectors of one spaCy package, its wheel pinned under ``weights``.

    A word without a vector counts as zeros; a text of such words alone is zeros.
    """
    files = dict(weights or {})
    if len(files) != 1:
        raise ModelError(
            f"model {id!r}: pin one spaCy package, a wheel, under `weights`; there are {len(files)}"
        )
    (path,) = files.values()
    spacy = require("spacy", "words")
    # A language cannot be handed over by another process: it is read where a damaged one harms nobody, then here.
    confined(lambda: _loaded(spacy, path, id) is None, limits_for([path]), f"model {id!r}: {path.name}")
    language = _loaded(spacy, path, id)
    if not language.vocab.vectors_length:
        raise ModelError(
            f"model {id!r}: {path.name} has no word vectors (packages that end in md and lg have)"
        )

    def embed(shown: Sequence[Shown], asked: tuple[int, ...] | None, tell: Tell) -> Embedded:
        if asked is not None:
            raise ModelError(f"model {id!r} has word vectors and no layers: leave --layer out")
        rows = np.stack([np.asarray(language.make_doc(one.text).vector, dtype=np.float32) for one in shown])
        tell(len(shown))
        lost = [one.text for one, row in zip(shown, rows, strict=True) if not row.any()]
        notes = (f"{len(lost)} texts have no vector and are zeros, first {lost[0]!r}",) if lost else ()
        return Embedded(rows, notes)

    told = {"weights": weights_identity(files), "packages": {"spacy": version_of("spacy")}, "words": "mean"}
    return Embedder(id=id, shown="text", embed=embed, described=told)


def _loaded(spacy: Any, path: Path, model: str) -> Any:
    with tempfile.TemporaryDirectory() as place:
        try:
            with zipfile.ZipFile(path) as wheel:
                folder = _folder(wheel, path, model)
                if sum(one.file_size for one in wheel.infolist()) > MOST_BYTES:
                    raise ModelError(
                        f"model {model!r}: {path.name} unpacks to more than {MOST_BYTES >> 30} GiB"
                    )
                for name in wheel.namelist():
                    inside = PurePosixPath(name)
                    if any(inside.is_relative_to(folder / part) for part in NEEDED):
                        wheel.extract(name, place)
            config = spacy.util.load_config(Path(place, folder, CONFIG))
            return spacy.load(Path(place, folder), exclude=list(config["nlp"]["pipeline"]))
        except (zipfile.BadZipFile, OSError, KeyError, ValueError) as error:
            raise ModelError(
                f"model {model!r}: {path.name} cannot be read as a spaCy package ({error})"
            ) from error


def _folder(wheel: zipfile.ZipFile, path: Path, model: str) -> PurePosixPath:
    """The folder of the package's data."""
    found = [PurePosixPath(name).parent for name in wheel.namelist() if PurePosixPath(name).name == CONFIG]
    if len(found) != 1:
        raise ModelError(f"model {model!r}: {path.name} is no wheel of a spaCy package: it has no {CONFIG}")
    return found[0]
