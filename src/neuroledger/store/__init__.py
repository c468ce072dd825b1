"""The store: what can be computed again is kept on disk by content, written atomically, locked, hashed and bounded."""
