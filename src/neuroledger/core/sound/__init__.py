"""Sound: what an ear hands on, band energies and the spikes that tell their changes."""
