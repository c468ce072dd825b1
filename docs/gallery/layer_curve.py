"""Which layer is most like a region?

`nl.layers` scores every layer of a network, and by default those of its untrained twin. One half of the stimuli
chooses the layer, the other half scores the choice, so that the best layer is not its own judge.
"""

import torch

import neuroledger as nl

torch.manual_seed(0)
network = torch.nn.Sequential(
    torch.nn.Conv2d(3, 16, 5, stride=2),
    torch.nn.ReLU(),
    torch.nn.Conv2d(16, 32, 3, stride=2),
    torch.nn.ReLU(),
    torch.nn.Conv2d(32, 64, 3, stride=2),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(2),
    torch.nn.Flatten(),
)
curve = nl.layers(
    network, "Kriegeskorte2008.IT-rdm", preprocessing={"resize": 64}, untrained=False
)
print(curve)
curve.plot()
