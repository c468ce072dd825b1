"""fMRI: runs, events, spaces and layouts."""
