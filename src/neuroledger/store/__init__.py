"""The store: what is kept on disk, written atomically and found again by content."""
