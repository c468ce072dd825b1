"""Networks: spiking neurons, sequences and learners that the efficiency family builds on."""
