"""Tests of training recipes of benchmarks: optimiser, schedule, sampling, and monitored values."""

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.metrics import f1_score

from neuroledger.errors import ModelError
from neuroledger.families.decoding.models.network_decoders import network_decoder
from neuroledger.families.decoding.protocols.decoder import Signature
from neuroledger.families.decoding.training.decoding_recipes import (
    Laptop,
    NeuralBench,
    TaskRecipe,
)
from neuroledger.families.decoding.training.signal_training import (
    batches_of,
    optimiser_of,
    sampling_weights,
    schedule_of,
)
from neuroledger.families.decoding.training.training_objectives import (
    Classes,
    Embeddings,
    Labels,
    Numbers,
    objective_for,
)
from neuroledger.spec.catalog import open_catalog


def signature(objective, outputs, recipe=None, channels=3, samples=64):
    ids = tuple(f"C{channel}" for channel in range(channels))
    return Signature(
        objective, channels, samples, outputs, 64.0, ids, 33, recipe=recipe
    )


def test_only_task_dependent_recipes_use_the_settings_of_tasks():
    task = TaskRecipe(patience=10, label_smoothing=0.0)
    assert NeuralBench().for_task(task).patience == 10
    assert NeuralBench().for_task(task).label_smoothing == 0.0
    assert NeuralBench().for_task(task).epochs == 40
    assert NeuralBench(patience=7).for_task(task).patience == 7
    assert NeuralBench().for_task(None) == NeuralBench()
    assert Laptop().for_task(task) == Laptop()
    with pytest.raises(ValidationError, match="patiance"):
        TaskRecipe(patiance=3)


def test_recipes_can_be_changed_in_every_field_that_a_task_can_ask_for():
    assert set(TaskRecipe.model_fields) <= set(NeuralBench.model_fields)
    for field, info in TaskRecipe.model_fields.items():
        assert info.default is None, field


@pytest.mark.parametrize(
    ("benchmark", "fields"),
    [
        (
            "eeg.p3",
            {
                "patience": 10,
                "class_weights": True,
                "label_smoothing": 0.1,
                "learning_rate": 1e-4,
            },
        ),
        ("eeg.lrp", {"patience": 10}),
        (
            "eeg.mismatch_negativity",
            {"patience": 10, "label_smoothing": 0.0, "class_weights": True},
        ),
        (
            "eeg.mental_imagery",
            {
                "patience": 15,
                "epochs": 100,
                "learning_rate": 5e-4,
                "label_smoothing": 0.0,
            },
        ),
        (
            "eeg.seizure",
            {"sampler": "balanced", "class_weights": False, "label_smoothing": 0.1},
        ),
        (
            "eeg.sleep_arousal",
            {"sampler": "balanced", "class_weights": False, "label_smoothing": 0.0},
        ),
        ("eeg.ssvep", {"class_weights": False, "label_smoothing": 0.1}),
        ("eeg.age", {"patience": 7, "target_scale": "none", "loss_weight": 1.0}),
        ("eeg.reaction_time", {"patience": 5, "target_scale": "none"}),
        (
            "eeg.sleep_onset",
            {
                "loss_weight": 1e-4,
                "bins": (0, 40, 90, 300, 600),
                "monitor": "binned_mae",
            },
        ),
        ("eeg.clinical_event", {"patience": 5, "class_weights": True}),
        (
            "eeg.dementia_diagnosis",
            {"epochs": 40, "patience": 5, "class_weights": True},
        ),
        (
            "fmri.image",
            {"scale": "none", "clamp": 0.0, "patience": 5, "learning_rate": 1e-4},
        ),
        ("fmri.image.Allen2022MassiveRaw", {"scale": "none", "clamp": 0.0}),
        ("fmri.image.Hebart2023ThingsBold", {"scale": "none", "clamp": 0.0}),
        (
            "emg.typing",
            {
                "optimiser": "adam",
                "learning_rate": 1e-3,
                "warm_up": 0.4,
                "batch": 16,
                "scale": "none",
            },
        ),
    ],
)
def test_benchmarks_ask_for_the_published_recipe_of_their_task(benchmark, fields):
    asked = (
        open_catalog()
        .benchmark(f"neuralbench.{benchmark}")
        .paradigm.parameters.get("recipe")
    )
    recipe = NeuralBench().for_task(TaskRecipe.model_validate(asked) if asked else None)
    assert {field: getattr(recipe, field) for field in fields} == fields


def test_embeddings_of_language_are_standardised_as_published():
    catalog = open_catalog()
    asked = {
        name: catalog.benchmark(f"neuralbench.eeg.{name}").paradigm.parameters.get(
            "standardise_targets", False
        )
        for name in ("sentence", "speech", "word", "image", "video")
    }
    assert asked == {
        "sentence": True,
        "speech": True,
        "word": False,
        "image": False,
        "video": False,
    }


def test_the_rate_of_typing_rises_slowly_from_next_to_nothing():
    import torch

    task = TaskRecipe(
        optimiser="adam",
        learning_rate=1e-3,
        warm_up=0.4,
        start_divisor=1e5,
        end_divisor=1e3,
        epochs=10,
    )
    recipe = NeuralBench().for_task(task)
    optimiser = optimiser_of(recipe, torch.nn.Linear(2, 2).parameters())
    assert type(optimiser).__name__ == "Adam"
    assert optimiser.param_groups[0]["weight_decay"] == 0
    schedule = schedule_of(recipe, optimiser, 10)
    rates = []
    for _ in range(100):
        rates.append(schedule.get_last_lr()[0])
        optimiser.step()
        schedule.step() if len(rates) < 100 else None
    assert rates[0] == pytest.approx(1e-8)
    assert np.argmax(rates) == 39
    assert max(rates) == pytest.approx(1e-3)
    assert rates[-1] == pytest.approx(1e-11)


def test_a_constant_rate_stays():
    import torch

    recipe = Laptop(schedule="constant")
    optimiser = optimiser_of(recipe, torch.nn.Linear(2, 2).parameters())
    schedule = schedule_of(recipe, optimiser, 3)
    for _ in range(7):
        optimiser.step()
        schedule.step()
    assert schedule.get_last_lr() == [1e-3]


def drawn(targets, recipe, epochs=200):
    import torch

    rarity = sampling_weights(targets, recipe)
    order = torch.Generator().manual_seed(0)
    batches = [
        batch
        for _ in range(epochs)
        for batch in batches_of(len(targets), recipe, rarity, order)
    ]
    assert all(len(batch) <= recipe.batch for batch in batches)
    return torch.cat(batches).numpy()


def test_a_balanced_sampler_draws_classes_equally_often():
    import torch

    targets = torch.tensor([0] * 80 + [1] * 15 + [2] * 5)
    rows = drawn(targets, Laptop(sampler="balanced"))
    assert len(rows) == 200 * 100
    np.testing.assert_allclose(
        np.bincount(targets.numpy()[rows]) / len(rows), 1 / 3, atol=0.015
    )
    whole = drawn(targets, Laptop(), epochs=1)
    assert sorted(whole.tolist()) == list(range(100))


def test_a_balanced_sampler_draws_bins_equally_often_and_nothing_outside_them():
    import torch

    numbers = torch.tensor(
        [[-1.0]] * 5 + [[0.0]] * 60 + [[50.0]] * 30 + [[600.0]] * 10 + [[601.0]] * 5
    )
    recipe = Laptop(sampler="balanced", bins=(0, 40, 90, 600))
    counts = numbers.numpy()[drawn(numbers, recipe)]
    assert {float(value) for value in np.unique(counts)} == {0.0, 50.0, 600.0}
    np.testing.assert_allclose(
        np.unique(counts, return_counts=True)[1] / len(counts), 1 / 3, atol=0.015
    )
    with pytest.raises(ModelError, match="needs classes, or one number with `bins`"):
        sampling_weights(numbers, Laptop(sampler="balanced"))
    with pytest.raises(ModelError, match="within the bins"):
        sampling_weights(numbers, Laptop(sampler="balanced", bins=(700, 800)))


def test_labels_are_weighted_by_how_many_windows_lack_them():
    import torch

    y = np.array([[1, 0, 1], [0, 0, 1], [0, 0, 1], [1, 0, 0]])
    task = Labels(signature("multilabel", 3), NeuralBench(), y)
    loss = task.loss(task.targets(y))
    assert loss.pos_weight.tolist() == [1.0, 1.0, pytest.approx(1 / 3)]
    assert (
        Labels(signature("multilabel", 3), NeuralBench(class_weights=False), y)
        .loss(torch.ones(2, 3))
        .pos_weight
        is None
    )


def test_the_headline_metric_is_monitored():
    from sklearn.metrics import balanced_accuracy_score

    rng = np.random.default_rng(0)
    y, scores = (
        rng.integers(0, 2, (50, 4)),
        rng.standard_normal((50, 4)).astype(np.float32),
    )
    labels = Labels(signature("multilabel", 4), NeuralBench(), y)
    assert labels.monitor_value(scores, labels.targets(y)) == pytest.approx(
        f1_score(y, scores > 0, average="macro")
    )
    names = np.array(["a", "b", "c", "d"])[rng.integers(0, 4, 50)]
    classes = Classes(signature("classification", 4), NeuralBench(), names)
    expected = balanced_accuracy_score(
        names, np.array(["a", "b", "c", "d"])[scores.argmax(axis=1)]
    )
    assert classes.monitor_value(scores, classes.targets(names)) == pytest.approx(
        expected
    )

    embeddings_true = rng.standard_normal((50, 4))
    embeddings = Embeddings(
        signature("retrieval", 4), NeuralBench(batch=20), embeddings_true
    )
    ranks = []
    for part in np.split(np.arange(50), (20, 40)):
        unit = embeddings_true[part] / np.linalg.norm(
            embeddings_true[part], axis=1, keepdims=True
        )
        similar = scores[part].astype(float) @ unit.T
        ranks += [
            (similar[k] > similar[k, k]).sum() / (len(part) - 1)
            for k in range(len(part))
        ]
    assert embeddings.monitor_value(
        scores, embeddings.targets(embeddings_true)
    ) == pytest.approx(1 - np.mean(ranks))
    assert (
        embeddings.monitor_value(
            embeddings_true.astype(np.float32) * 1, embeddings.targets(embeddings_true)
        )
        > 0.8
    )


@pytest.mark.parametrize("scaled", ["standard", "none"])
def test_errors_of_numbers_are_watched_in_their_own_units(scaled):
    y = np.array([10.0, 20.0, 100.0, 300.0])
    recipe = NeuralBench(
        monitor="binned_mae", bins=(0, 40, 200, 400), target_scale=scaled
    )
    task = Numbers(signature("regression", 1), recipe, y)
    targets = task.targets(y)
    kept = task.targets(y + np.array([1.0, 3.0, 10.0, -5.0])).numpy()
    assert task.monitor_value(kept, targets) == pytest.approx(
        -np.mean([2.0, 10.0, 5.0]), rel=1e-5
    )
    plain = Numbers(
        signature("regression", 1), recipe.model_copy(update={"monitor": "mae"}), y
    )
    assert plain.monitor_value(kept, targets) == pytest.approx(
        -np.mean([1, 3, 10, 5]), rel=1e-5
    )
    np.testing.assert_allclose(plain.answers(kept), y + [1, 3, 10, -5], rtol=1e-5)


@pytest.mark.parametrize("scaled", ["standard", "none"])
def test_numbers_at_the_edges_are_watched_where_the_sampler_and_the_metric_have_them(
    scaled,
):
    y = np.array([0.0, 40.0, 600.0, 600.0, 601.0, 133.3])
    recipe = NeuralBench(
        monitor="binned_mae", bins=(0, 40, 90, 300, 600), target_scale=scaled
    )
    task = Numbers(signature("regression", 1), recipe, y)
    kept = task.targets(y + np.array([1.0, 2.0, 4.0, 6.0, 1000.0, 3.0])).numpy()
    assert task.monitor_value(kept, task.targets(y)) == pytest.approx(
        -np.mean([1.0, 2.0, 3.0, 5.0]), rel=1e-4
    )


def test_labels_that_never_occur_count_as_zero_in_the_monitored_value():
    y = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 0, 0]])
    task = Labels(signature("multilabel", 3), NeuralBench(), y)
    scores = np.array(
        [[1, -1, -1], [1, 1, -1], [1, 1, -1], [-1, -1, -1]], dtype=np.float32
    )
    for kept in (scores, np.abs(scores)):
        expected = f1_score(y, kept > 0, average="macro", zero_division=0)
        assert task.monitor_value(kept, task.targets(y)) == pytest.approx(expected)


def test_a_monitored_error_needs_numbers_and_bins():
    with pytest.raises(ModelError, match="`monitor: mae` is an error of numbers"):
        objective_for(
            signature("multilabel", 2), NeuralBench(monitor="mae"), np.zeros((3, 2))
        )
    task = Numbers(
        signature("regression", 1), NeuralBench(monitor="binned_mae"), np.arange(3.0)
    )
    with pytest.raises(ModelError, match="needs `bins`"):
        task.monitor_value(np.zeros((3, 1)), task.targets(np.arange(3.0)))


def test_losses_of_numbers_follow_the_recipe():
    import torch

    predicted, target = torch.tensor([[1.0], [4.0]]), torch.tensor([[0.0], [2.0]])
    for recipe, expected in (
        (Laptop(), 2.5),
        (Laptop(loss="absolute"), 1.5),
        (Laptop(loss_weight=0.5), 1.25),
        (Laptop(loss="absolute", loss_weight=0.5), 0.75),
    ):
        task = Numbers(signature("regression", 1), recipe, np.arange(2.0))
        assert float(task.loss(target)(predicted, target)) == expected


def test_a_training_follows_the_recipe_of_its_benchmark():
    rng = np.random.default_rng(0)
    y = np.tile(["a", "b"], 40)
    x = rng.standard_normal((80, 3, 64)).astype(np.float32)
    x[:, 0] += 3 * (y == "b")[:, None]
    decoder = network_decoder(
        id="e", architecture="eegnet", recipe=NeuralBench(threads=1)
    )
    fitted = decoder.make(signature("classification", 2, TaskRecipe(epochs=2))).fit(
        x, y
    )
    assert fitted.epochs_ == 2
    balanced = decoder.make(
        signature("classification", 2, TaskRecipe(epochs=2, sampler="balanced"))
    ).fit(x, y)
    assert (balanced.predict_proba(x) != fitted.predict_proba(x)).any()
    watched = decoder.make(
        signature("classification", 2, TaskRecipe(epochs=2, monitor="loss"))
    ).fit(x, y)
    np.testing.assert_array_equal(watched.predict_proba(x).shape, (80, 2))
    laptop = network_decoder(id="e", architecture="eegnet", recipe=Laptop(epochs=3))
    assert (
        laptop.make(signature("classification", 2, TaskRecipe(epochs=1)))
        .fit(x, y)
        .epochs_
        == 3
    )


def test_retrieval_can_stop_by_the_share_among_the_first_five_of_a_batch():
    import torch

    rng = np.random.default_rng(0)
    true = rng.standard_normal((130, 8))
    guessed = true + 2.5 * rng.standard_normal(true.shape)
    found = []
    for start in (0, 64):
        x, y = guessed[start : start + 64], true[start : start + 64]
        scores = x @ (y / np.linalg.norm(y, axis=1, keepdims=True)).T
        above = (scores > np.diag(scores)[:, None]).sum(axis=1)
        found += (above < 5).tolist()
    x, y = guessed[128:], true[128:]
    found += [True] * len(x)  # Two candidates are always among the first five.
    objective = Embeddings(
        signature("retrieval", 8),
        Laptop(batch=64, monitor="batch_top5"),
        true,
    )
    assert objective.monitor_value(guessed, torch.from_numpy(true)) == np.mean(found)
    assert 0.2 < np.mean(found) < 0.9
