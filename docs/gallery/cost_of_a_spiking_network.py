"""What a spiking network saves.

The same layers with spiking neurons: the multiply-accumulates become accumulates, and their number
follows the spikes.
"""

import snntorch
import torch

import neuroledger as nl

torch.manual_seed(0)
neurons = {"beta": 0.9, "init_hidden": True}
spiking = torch.nn.Sequential(
    torch.nn.Linear(64, 64),
    snntorch.Leaky(**neurons),
    torch.nn.Linear(64, 10),
    snntorch.Leaky(**neurons, output=True),
)
spikes = (torch.rand(20, 25, 64) < 0.1).float()
asked = ["effective_macs", "effective_acs", "membrane_updates", "spikes", "energy_45nm"]
print(nl.cost(spiking, [spikes], asked))
