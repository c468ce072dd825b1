"""Event cameras: file formats, bins, boxes and frames."""
