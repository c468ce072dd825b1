"""Facts on which a score depends; they are defined with the data, whose readers state the first of them."""

from neuroledger.data.facts import Fact, Origin

__all__ = ["Fact", "Origin"]
