"""Score your own network on the human brain.

A torch module is scored as it is: name the layer for a region. Here an untrained network is
compared with the dissimilarities of 92 images in the IT cortex of four people. The second line asks
the records how much training adds to a published network.
"""

import torch

import neuroledger as nl

torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 7, stride=4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4)
)
score = nl.score(
    network,
    "Kriegeskorte2008.IT-rdm",
    regions={"IT": "2"},
    preprocessing={"resize": 64},
)
print(score)

trained = nl.compare("efficientnet_lite0", "efficientnet_lite0.untrained", suite="real")
gain = trained.overall
print(f"training adds {gain.value:.3f} [{gain.low:.3f}, {gain.high:.3f}]")
nl.plot.differences(trained)
