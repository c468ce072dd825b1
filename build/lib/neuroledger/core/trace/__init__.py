"""One pass of a network, counted: operations, activations, membranes, weights, time and memory."""
