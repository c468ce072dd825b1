"""Scores and costs of a network in one table.

`nl.evaluate` scores a module on every benchmark that fits it, or on the named ones, and counts its
operations on their stimuli.
"""

import torch

import neuroledger as nl

torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 7, stride=4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4)
)
table = nl.evaluate(
    network,
    benchmarks=["Kriegeskorte2008.IT-rdm", "Kriegeskorte2008.monkeyIT-rdm"],
    regions={"IT": "2"},
    preprocessing={"resize": 64},
)
print(table)
