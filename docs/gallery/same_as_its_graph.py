"""Does an exported network answer alike?

`nl.same` compares a network with its NIR or ONNX graph layer by layer, so that a cost that was
counted on the graph is the cost of the network.
"""

import nir
import torch

import neuroledger as nl

torch.manual_seed(0)
network = torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Linear(6, 2))
layers = [
    nir.Affine(layer.weight.detach().numpy(), layer.bias.detach().numpy())
    for layer in network
]
print(nl.same(network, nir.NIRGraph.from_list(*layers), torch.rand(5, 8)))
