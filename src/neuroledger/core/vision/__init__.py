"""Vision: images decoded, put on a screen, looked at, and named."""
