"""Runs in the environment of Brain-Score's language benchmarks: scores them on simulated packages.

``python -m tests.parity.language_peer FOLDER [SECONDS]`` works like :mod:`tests.parity.peer`, and writes
``FOLDER/language.json``. The suites of SyntaxGym are real, from its package; recordings and reading times are simulated.
"""

import json
import os
import sys
import time
import traceback
import types
import warnings
from pathlib import Path

os.environ |= {"BS_INSTALL_DEPENDENCIES": "no", "RESULTCACHING_DISABLE": "1"}

import numpy as np
from brainscore_core.supported_data_standards.brainio.assemblies import (
    BehavioralAssembly,
    NeuroidAssembly,
)
from brainscore_core.supported_data_standards.brainio.packaging import write_netcdf

from tests.parity.stored_reader import FEATURES, features_of, time_of, word_of

warnings.filterwarnings("ignore")
NOUNS = [
    "cat",
    "dog",
    "house",
    "road",
    "river",
    "king",
    "song",
    "stone",
    "tree",
    "wind",
]
# Keys of the registry with a longer name in the released package.
RELEASED = {
    f"{name}-linear": f"{name}-linear-shuffle"
    for name in ("Blank2014", "Fedorenko2016")
}
VERBS = ["sees", "finds", "follows", "leaves", "builds", "hears"]


class Reader:
    """The simulated reader with Brain-Score's interface."""

    def __init__(self):
        self.recorded, self.task = False, None

    def identifier(self):
        return "stored"

    def start_neural_recording(self, recording_target, recording_type):
        self.recorded, self.task = True, None

    def start_behavioral_task(self, task):
        self.recorded, self.task = False, task

    def digest_text(self, text):
        parts = [text] if isinstance(text, str) else [str(one) for one in text]
        read = [" ".join(parts[: n + 1]) for n in range(len(parts))]
        place = {
            "stimulus": ("presentation", parts),
            "part_number": ("presentation", list(range(len(parts)))),
        }
        if self.recorded:
            values = np.stack([features_of(one) for one in read])
            place |= {
                "layer": ("neuroid", ["layer"] * FEATURES),
                "region": ("neuroid", ["language_system"] * FEATURES),
                "neuroid_id": ("neuroid", list(range(FEATURES))),
            }
            return {
                "neural": NeuroidAssembly(
                    values, dims=["presentation", "neuroid"], coords=place
                )
            }
        if self.task == "next_word":  # each beginning of a line is a text of its own
            said = [word_of(one) for one in parts]
        else:
            said = [time_of(one, at) for at, one in enumerate(read)]
        return {
            "behavior": BehavioralAssembly(said, dims=["presentation"], coords=place)
        }


def sentences(rng, count):
    """Short sentences, all different."""
    return [
        f"the {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)} {n}"
        for n in range(count)
    ]


def responses(rng, texts, passages, neuroids, noise=1.5):
    """Recordings as mixtures of the reader's responses in the context of the passage."""
    read, seen = [], {}
    for text, passage in zip(texts, passages):
        seen.setdefault(passage, []).append(text)
        read.append(" ".join(seen[passage]))
    signal = (
        np.stack([features_of(one) for one in read])
        @ rng.normal(size=(FEATURES, 3))
        / 3
    )
    return signal @ rng.normal(size=(3, neuroids)) + noise * rng.normal(
        size=(len(texts), neuroids)
    )


def people(count, per, name):
    """Coordinates of some neuroids of each subject."""
    who = np.repeat([f"s{n}" for n in range(count)], per)
    return {
        name: ("neuroid", who),
        "neuroid_id": ("neuroid", list(range(count * per))),
        "atlas": ("neuroid", ["language"] * count * per),
    }


def write(
    folder, name, values, coords, dims=("presentation", "neuroid"), cls=NeuroidAssembly
):
    """An assembly under its published name."""
    write_netcdf(
        cls(values, dims=list(dims), coords=coords),
        folder / f"assy_{name.replace('.', '_')}.nc",
    )


def packages(folder, seed):
    """Write every assembly of the registry that a benchmark uses, and continuous text."""
    rng = np.random.default_rng([seed, 1])
    texts = sentences(rng, 120)
    experiment = ["243sentences"] * 60 + ["384sentences"] * 60
    labels = [
        f"passage {n // 4 % 15}" if n < 60 else f"text {n // 4}" for n in range(120)
    ]
    values = responses(rng, texts, labels, 8)
    values[:60, :2] = np.nan  # some subjects took part in one experiment only
    values[60:, -2:] = np.nan
    coords = {
        "stimulus_id": [f"{experiment[n]}.{n}" for n in range(120)],
        "stimulus": texts,
        "experiment": experiment,
        "passage_label": labels,
        "passage_index": [n // 4 for n in range(120)],
        "story": labels,
    }
    coords = {name: ("presentation", held) for name, held in coords.items()}
    write(folder, "Pereira2018.language", values, coords | people(4, 2, "subject"))
    texts = sentences(rng, 80)
    story = [f"story{n // 10}" for n in range(80)]
    coords = {
        "stimulus_id": ("presentation", list(range(80))),
        "stimulus": ("presentation", texts),
        "story": ("presentation", story),
    }
    write(
        folder,
        "Blank2014.fROI",
        responses(rng, texts, story, 8),
        coords | people(4, 2, "subject_id"),
    )
    words = [word for sentence in sentences(rng, 15) for word in sentence.split()]
    sentence = [n // 6 for n in range(len(words))]
    coords = {
        "stimulus_id": ("presentation", list(range(len(words)))),
        "stimulus": ("presentation", words),
        "sentence_id": ("presentation", sentence),
        "word_id": ("presentation", [n % 6 for n in range(len(words))]),
    }
    write(
        folder,
        "Fedorenko2016.language",
        responses(rng, words, sentence, 8),
        coords | people(4, 2, "subject_UID"),
    )
    texts = sentences(rng, 80)
    coords = {
        "stimulus_id": ("presentation", [f"sentence.{n:03d}" for n in range(80)]),
        "stimulus": ("presentation", texts),
        "cond": ("presentation", ["T"] * 80),
    }
    coords |= {
        "neuroid_id": ("neuroid", [0]),
        "subject": ("neuroid", ["mean"]),
        "roi": ("neuroid", ["language"]),
    }
    write(folder, "Tuckute2024.language", responses(rng, texts, range(80), 1), coords)
    words = [word for one in sentences(rng, 40) for word in one.split()]
    read = [" ".join(words[: n + 1]) for n in range(len(words))]
    times = np.array([0.0 if n == 0 else time_of(one, n) for n, one in enumerate(read)])
    values = 250 + 10 * times[:, None] + 40 * rng.normal(size=(len(words), 9))
    values[7, 2] = np.nan
    coords = {
        "stimulus_id": ("presentation", list(range(len(words)))),
        "word": ("presentation", words),
        "word_within_sentence_id": (
            "presentation",
            [n % 6 + 1 for n in range(len(words))],
        ),
        "sentence_id": ("presentation", [n // 6 for n in range(len(words))]),
        "subject_id": ("subject", [f"r{n}" for n in range(9)]),
        "WorkTimeInSeconds": ("subject", list(range(9))),
    }
    write(
        folder,
        "Futrell2018",
        values,
        coords,
        ("presentation", "subject"),
        BehavioralAssembly,
    )
    lines = [
        "",
        " = Cats = ",
        "",
        *(f" {' '.join(sentences(rng, 3))} . " for _ in range(12)),
        " = = Dogs = = ",
        " one ",
    ]
    (folder / "wiki.test.raw").write_text("\n".join(lines) + "\n", encoding="utf-8")


def in_place(folder):
    """Let the peer's loaders read files of the folder instead of buckets and web sites."""
    import requests
    from brainscore_language.utils import s3

    suites = next(Path(s3.__file__).parents[1].glob("benchmarks/syntaxgym/suites/*"))
    for suite in suites.glob("*.json"):
        (folder / suite.name).write_bytes(suite.read_bytes())
    s3.fetch_file = lambda location, **_: str(folder / location.rsplit("/", 1)[1])
    requests.get = lambda url: types.SimpleNamespace(
        json=lambda: json.loads(
            (folder / url.rsplit("/", 1)[1]).read_text(encoding="utf-8")
        )
    )
    lines = (
        (folder / "wiki.test.raw").read_text(encoding="utf-8").splitlines(keepends=True)
    )
    corpora = types.ModuleType("datasets")
    corpora.load_dataset = lambda *_, **__: {"text": lines}
    sys.modules["datasets"] = corpora


def scored(key):
    """Raw score, ceiling and score of one benchmark; stored ceilings are recomputed by the code that produced them."""
    import brainscore_language
    from brainscore_language.benchmarks.blank2014.ceiling import ExtrapolationCeiling
    from brainscore_language.benchmarks.pereira2018 import benchmark as pereira

    experiment = pereira._Pereira2018Experiment
    experiment._load_ceiling = lambda self, **_: ExtrapolationCeiling(
        subject_column="subject"
    )(assembly=self.data, metric=self.metric)
    score = brainscore_language.load_benchmark(RELEASED.get(key, key))(Reader())
    found = {
        "score": score,
        "raw": score.attrs.get("raw"),
        "ceiling": score.attrs.get("ceiling"),
    }
    if key.startswith(("syntaxgym", "Wikitext")):
        found["raw"] = None  # one value for each item
    return {
        name: None if one is None else float(np.asarray(one))
        for name, one in found.items()
    }


def main(folder, seconds):
    """Write the packages, then score every benchmark."""
    began = time.monotonic()
    asked = json.loads((folder / "jobs.json").read_text())
    files = folder / "texts"
    if not files.is_dir():
        files.mkdir()
        packages(files, asked["seed"])
    in_place(files)
    target = folder / "language.json"
    result = json.loads(target.read_text()) if target.is_file() else {}
    for key in asked["language"]:
        if key in result or (seconds and time.monotonic() - began > seconds):
            continue
        try:
            result[key] = scored(key)
        except Exception as error:
            traceback.print_exc()
            where = traceback.extract_tb(error.__traceback__)[-1]
            said = str(error).splitlines()[0] if str(error) else ""
            result[key] = {
                "failed": f"{type(error).__name__}: {said[:120]} ({Path(where.filename).name}:{where.lineno})"
            }
        target.write_text(json.dumps(result, indent=1))
    return all(key in result for key in asked["language"])


if __name__ == "__main__":
    sys.exit(
        not main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 0)
    )
