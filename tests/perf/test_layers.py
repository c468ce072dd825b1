"""Layers are timed as they are scored: each Gram matrix once alone, and once for all metrics and assemblies."""

import numpy as np

from neuroledger.families.alignment.similarity import gram as module
from perf import layers as timing


def test_every_layer_is_reduced_once_alone_and_once_for_all_scores(monkeypatch):
    network = timing.Network("small", (120, 40, 300))
    monkeypatch.setitem(timing.NETWORKS, "small", network)
    monkeypatch.setattr(timing, "STIMULI", 60)
    monkeypatch.setattr(timing, "TARGETS", 12)
    passes = []
    once = module.gram_numpy
    monkeypatch.setattr(
        module,
        "gram_numpy",
        lambda X, workspace: passes.append(X.shape[1]) or once(X, workspace),
    )
    timed = timing.layers("cpu", "small")
    brains = [3] * timing.ASSEMBLIES
    assert sorted(passes) == sorted([*network.counts, *network.counts, *brains])
    assert set(timed.parts) == {"gram", *timing.METRICS}
    assert timed.one_pass > 0
    assert timed.scoring == sum(timed.parts.values()) > timed.one_pass


def test_features_are_those_of_twenty_layers_and_read_only():
    for network in timing.NETWORKS.values():
        assert len(network.counts) == 20
    X, Y = timing._recorded(timing.Network("small", (30, 10)))
    assert X.shape == (timing.STIMULI, 30 + 64 * 2)
    assert X.dtype == np.float32 and not X.flags.writeable and (X >= 0).all()
    assert Y.shape == (timing.STIMULI, timing.TARGETS)
