"""Programs that write what this repository contains: simulated data, trained networks, and specs of Brain-Score."""
