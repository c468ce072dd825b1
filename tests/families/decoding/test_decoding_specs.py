"""Tests of decoding through specs: leaks fail the job, overlap is noted, floors have fallbacks, results are current."""

import hashlib
import shutil

import numpy as np
import pytest
import yaml

from neuroledger.data import assembly as assemblies
from neuroledger.data.gate.validate import validate
from neuroledger.engine.check import check
from neuroledger.engine.evaluate import evaluate
from neuroledger.engine.plan import plan
from neuroledger.engine.session import Request, Session
from neuroledger.errors import DataError
from neuroledger.families.signals.signals import recording_digests
from neuroledger.spec.catalog import open_catalog
from tests.families.decoding.decoding_cases import windows

MODELS = {
    "chance": {"builder": {"name": "shrinkage_lda", "shuffles_labels": True}},
    "lda": {"builder": {"name": "shrinkage_lda", "every": 4}},
    "ridge": {
        "builder": {
            "name": "sklearn_decoder",
            "path": "sklearn.linear_model.Ridge",
            "objective": "regression",
        }
    },
    "seen": {
        "builder": {"name": "shrinkage_lda", "every": 4},
        "pretraining": ["Signals"],
    },
    "planted": {
        "builder": {"name": "shrinkage_lda", "every": 4, "plants": 3.0},
        "control": "positive",
    },
}


class Repository:
    """A repository with one data set of signals and one benchmark, in a folder of its own."""

    def __init__(self, root, source):
        self.root = root
        (root / "dvc.yaml").write_text("stages: {}\n", encoding="utf-8")
        for kind in (
            "datasets",
            "metrics",
            "ceilings",
            "benchmarks",
            "models",
            "suites",
            "schema",
        ):
            (root / "specs" / kind).mkdir(parents=True)
        shutil.copy(source / "specs" / "references.bib", root / "specs")
        for id, fields in MODELS.items():
            self.write(
                "models", {"id": id, "version": 1, "title": f"Model {id}", **fields}
            )

    def write(self, kind, fields):
        (self.root / "specs" / kind / f"{fields['id']}.yaml").write_text(
            yaml.safe_dump(fields), encoding="utf-8"
        )

    def data(self, signals):
        folder = self.root / "data" / "Signals.part"
        folder.mkdir(parents=True, exist_ok=True)
        assemblies.write(signals, folder / "signals.nc")
        content = (folder / "signals.nc").read_bytes()
        pin = {
            "dvc": True,
            "size": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        self.write(
            "datasets",
            {
                "id": "Signals.part",
                "version": 1,
                "title": "Signals for a test",
                "license": "MIT",
                "files": {"signals.nc": pin},
                "reader": {"name": "prepared_signals"},
                "expectations": {
                    "assembly": [
                        {"check": "dims", "dims": ["presentation", "channel", "sample"]}
                    ]
                },
            },
        )
        assert validate(open_catalog(self.root), "Signals.part").success

    def benchmark(self, **changes):
        fields = {
            "id": "B",
            "version": 1,
            "title": "A benchmark",
            "parent": "test",
            "dataset": "Signals.part",
            "paradigm": {"name": "decoding", "splits": {"name": "cross_subject"}},
            "metric": "balanced_accuracy",
            "floor": {"dummy": "dummy"},
            "controls": {
                "positive": ["planted"],
                "negative": ["chance"],
                "floor_at_most": 0.4,
            },
        }
        self.write("benchmarks", fields | changes)

    def score(self, model, seed=0):
        session = Session(open_catalog(self.root), Request(seed=seed))
        return evaluate(session, session.catalog.benchmark("B"), model).headline

    def identity(self, model="lda", seed=0):
        catalog = open_catalog(self.root)
        return (
            plan(catalog, models=[model], benchmarks=["B"], request=Request(seed=seed))
            .jobs[0]
            .id
        )


@pytest.fixture
def repo(tmp_path, repository):
    made = Repository(tmp_path, repository)
    made.data(windows(subjects=5, trials=20, strength=2.0))
    made.benchmark()
    return made


def test_zero_is_the_dummy_and_controls_run(repo):
    score = repo.score("lda")
    assert 0.7 < score.value <= 1
    assert score.n["dummy"] == 0.5
    assert score.n["subject"] == 5
    assert repo.score("dummy").value == 0


def test_a_rule_that_leaves_a_decoder_nothing_to_train_on_is_refused_by_check(
    tmp_path, repository
):
    made = Repository(tmp_path, repository)
    path = made.root / "specs" / "benchmarks" / "B.yaml"

    def problems(**fields):
        paradigm = {"name": "decoding", "train": "each", **fields}
        made.benchmark(paradigm=paradigm)
        found, _ = check(open_catalog(made.root), [path])
        return " ".join(finding.what for finding in found)

    assert "train: each" in problems(splits={"name": "cross_subject"})
    assert "train: each" not in problems(splits={"name": "within_session"})


def test_changed_data_never_give_an_old_score(repo):
    before, identity = repo.score("lda").value, repo.identity()
    repo.data(windows(subjects=5, trials=20, strength=0.3, seed=1))
    assert repo.identity() != identity
    assert repo.score("lda").value != before
    path = repo.root / "data" / "Signals.part" / "signals.nc"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError):
        repo.score("lda")


def test_another_seed_split_or_recipe_is_another_job(repo):
    identities = {repo.identity(), repo.identity(seed=1)}
    repo.benchmark(
        paradigm={"name": "decoding", "splits": {"name": "cross_subject", "folds": 2}}
    )
    identities.add(repo.identity())
    repo.benchmark(
        paradigm={"name": "decoding", "splits": {"name": "cross_subject"}, "seeds": [1]}
    )
    identities.add(repo.identity())
    assert len(identities) == 4


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        ({"name": "random", "folds": 4}, "overlap in time"),
        (
            {
                "name": "declared",
                "column": "session",
                "test": ["1"],
                "apart": ["subject"],
            },
            "subject on both sides: S0",
        ),
        ({"name": "cross_subject", "sha256": "0" * 64}, "pinned is 0000"),
    ],
)
def test_a_wrong_split_leaves_no_score(repo, splits, words):
    repo.data(windows(subjects=5, trials=20, gap=0.5, sessions=2, strength=2.0))
    repo.benchmark(paradigm={"name": "decoding", "splits": splits})
    with pytest.raises(DataError, match=words):
        repo.score("lda")


def test_pretraining_on_the_same_data_is_noted_with_the_score(repo):
    assert not any("pretraining" in note for note in repo.score("lda").notes)
    assert (
        "pretraining overlap: the model was pretrained on Signals"
        in repo.score("seen").notes
    )
    own = recording_digests(windows(subjects=5, trials=20, strength=2.0))
    stolen = [{"dataset": "Elsewhere", "recordings": [next(iter(own.values()))]}]
    repo.write(
        "models",
        {
            "id": "seen",
            "version": 1,
            "title": "Model seen",
            **MODELS["lda"],
            "pretraining": stolen,
        },
    )
    assert any(
        "1 of 5 recordings by content" in note for note in repo.score("seen").notes
    )


def test_a_dummy_without_a_score_is_replaced_by_its_fallback(repo):
    paradigm = {
        "name": "decoding",
        "splits": {"name": "cross_subject"},
        "target": "number",
        "objective": "regression",
    }
    other = {"builder": {**MODELS["ridge"]["builder"], "shuffles_labels": True}}
    repo.write(
        "models", {"id": "shuffled", "version": 1, "title": "Shuffled ridge", **other}
    )
    floor = {"dummy": "dummy", "fallback": "shuffled"}
    repo.benchmark(
        paradigm=paradigm, metric="decoding_pearson_r", floor=floor, controls={}
    )
    score = repo.score("ridge")
    assert np.isfinite(score.value)
    assert score.n["dummy"] != 0
    assert score.value == pytest.approx(
        (score.raw - score.n["dummy"]) / (1 - score.n["dummy"])
    )
