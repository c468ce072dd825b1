"""What a network costs.

One pass counts the operations of every layer. Multiply-accumulates need a multiplication; inputs
that are only 0 and 1 need accumulates alone. Zeros cost nothing.
"""

import torch

import neuroledger as nl

torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Conv2d(1, 8, 3),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(288, 10),
)
asked = ["parameter_count", "footprint", "effective_macs", "dense_operations"]
costs = nl.cost(network, [torch.rand(16, 1, 8, 8)], asked)
print(costs)
print(costs["effective_macs"].samples.to_series().to_string())
