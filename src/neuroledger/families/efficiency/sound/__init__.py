"""Sound: clips, band energies and the spikes of their changes."""
