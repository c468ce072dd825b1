"""Similar texts share a cluster, so they stay on one side of a partition."""

import pytest

from neuroledger.errors import DataError
from neuroledger.families.signals.language.text_clusters import cluster_texts


def test_repeats_and_near_repeats_share_a_cluster():
    texts = [
        "the cat sat on the mat",
        "stocks fell sharply today",
        "the cat sat on a mat",
        "the cat sat on the mat",
    ]
    names = cluster_texts(texts)
    assert names[0] == names[2] == names[3] != names[1]


def test_a_lower_threshold_separates_texts_that_a_higher_one_joins():
    texts = ["red wine and cheese", "red wine and bread", "quite another thing"]
    assert len(set(cluster_texts(texts, threshold=0.9))) == 2
    assert len(set(cluster_texts(texts, threshold=0.05))) == 3


def test_a_text_without_words_is_refused():
    with pytest.raises(DataError, match="no word"):
        cluster_texts(["...", "word"])
