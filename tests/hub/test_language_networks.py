"""A language network reads: surprisal by another road, context by passage, a window that forgets, and what it lacks."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from neuroledger.data.dataset import Dataset
from neuroledger.data.stimuli import StimulusSet
from neuroledger.errors import ModelError
from neuroledger.families.signals.models.language_readers import language_network
from neuroledger.families.signals.paradigms.reading import reading
from tests.hub import tiny_networks as tiny

pytestmark = pytest.mark.hub

TEXTS = pd.DataFrame(
    {
        "stimulus_id": ["1", "2", "3"],
        "text": ["the cat", "the dog", "a"],
        "story": ["x", "x", "y"],
    }
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("gpt2")
    published, _ = tiny.published_gpt2(folder)
    state = dict(tiny.network("GPT2LMHeadModel", tiny.GPT2).state_dict())
    state.pop("lm_head.weight")
    return published | tiny.save(folder, state)


def network(files: dict[str, Path], **more: Any) -> Any:
    given = {
        "architecture": "GPT2LMHeadModel",
        "config": tiny.GPT2,
        "longest": 32,
        "regions": {"language_system": "2"},
    }
    return language_network(id="tiny", weights=files, **(given | more))


def data() -> Dataset:
    return Dataset(StimulusSet("story", TEXTS), None)


def by_hand(files: dict[str, Path], context: str, before: str) -> float:
    """Surprisal of what `context` adds to `before`, by transformers' own loss."""
    import torch
    from tokenizers import Tokenizer

    cut = Tokenizer.from_file(str(files["tokenizer.json"]))
    module = tiny.network("GPT2LMHeadModel", tiny.GPT2)
    ids = torch.tensor([cut.encode(context).ids])
    labels = ids.clone()
    labels[:, : len(cut.encode(before).ids)] = -100
    counted = int((labels[:, 1:] != -100).sum())
    return module(input_ids=ids, labels=labels).loss.item() * counted / np.log(2)


def test_surprisal_is_that_of_the_networks_own_loss(files: dict[str, Path]) -> None:
    found = reading(
        network(files), data(), give="reading_times", passage="story"
    ).source
    assert found.values[0] == pytest.approx(by_hand(files, "the cat", ""), rel=1e-5)
    assert found.values[1] == pytest.approx(
        by_hand(files, "the cat the dog", "the cat"), rel=1e-5
    )
    assert np.isnan(found.values[2])  # one token, and nothing before it


def test_context_changes_what_is_recorded_and_a_short_window_forgets_it(
    files: dict[str, Path],
) -> None:
    together, alone = (
        reading(network(files), data(), give="responses", passage=passage).source
        for passage in ("story", None)
    )
    assert together.shape == (3, 16)
    np.testing.assert_array_equal(together.values[[0, 2]], alone.values[[0, 2]])
    assert not np.allclose(together.values[1], alone.values[1])
    short = reading(
        network(files, longest=2), data(), give="responses", passage="story"
    ).source
    assert not np.allclose(short.values[1], together.values[1])


def test_the_next_word_is_the_most_probable_token(files: dict[str, Path]) -> None:
    found = reading(network(files), data(), give="next_word", passage="story").source
    assert found.dtype.kind == "U" and found.sizes["presentation"] == 3


def test_a_network_without_a_language_head_says_so(files: dict[str, Path]) -> None:
    with pytest.raises(ModelError, match="no language head"):
        reading(
            network(files, architecture="GPT2Model"),
            data(),
            give="reading_times",
            passage="story",
        )
    with pytest.raises(ModelError, match="not the number of a hidden state"):
        network(files, regions={"language_system": "transformer.h.2"})
