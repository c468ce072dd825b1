"""The strict pass: operators are counted below torch's functions, and hooks show what operators cannot."""

from __future__ import annotations

from typing import Any

import neuroledger.families.efficiency.counting.rules  # noqa: F401 - registers the counting rules
from neuroledger.families.efficiency.counting.counter import Counter
from neuroledger.families.efficiency.counting.counts import Need
from neuroledger.families.efficiency.counting.network import Network
from neuroledger.families.efficiency.counting.observer import Observer
from neuroledger.families.efficiency.counting.static import compiled_graphs
from neuroledger.families.efficiency.counting.tally import Tally

__all__ = ["StrictPass"]

GATED = ("lstm", "gru")


class StrictPass:
    """A strict pass over a network, batch by batch; nothing of it remains on the network in between."""

    def __init__(self, network: Network, needs: frozenset[Need]) -> None:
        self.network, self.needs = network, needs
        self.tally = Tally(network)
        self.counter = Counter(
            self.tally,
            operations="operations" in needs,
            activations="activations" in needs,
        )
        self.observer = Observer(network, self.counter, needs)

    def begin(self, size: int, shape: tuple[int, ...], inputs: Any) -> None:
        """Start counting in this thread, for a batch of ``size`` samples."""
        self.tally.begin(size, shape)
        self.counter.begin(inputs, self.network.sample_axis)
        self.observer.start()

    def end(self) -> None:
        """Stop counting."""
        self.observer.stop()

    def settle(self, answer: Any) -> None:
        """Complete the counts of the batch."""
        self.counter.check_answer(answer)
        self.tally.settle()

    def finish(self) -> None:
        """Complete the counts of the pass, and report compiled layers whose products among gates are not seen."""
        for name, part in self.network.parts if "operations" in self.needs else ():
            for graph in compiled_graphs(part):
                for kind in GATED:
                    if graph.findAllNodes(f"aten::{kind}"):
                        why = f"the products among the gates of a compiled {kind} are not counted"
                        self.tally.add_uncounted(name or type(part).__name__, why)

    @property
    def failures(self) -> dict[Need, str]:
        """Needs that could not be met."""
        hidden = (
            self.network.spiking
            and not self.observer.saw_spiking_layer
            and self.tally.samples
        )
        if not hidden:
            return {}
        why = f"no spiking layer was called as a module: {', '.join(self.network.spiking)} cannot be observed"
        return {"membranes": why, "activations": why}
