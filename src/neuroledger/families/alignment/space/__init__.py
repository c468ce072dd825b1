"""Space: searchlights over declared coordinates, and maps as files."""
