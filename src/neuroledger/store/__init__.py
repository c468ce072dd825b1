"""The store of recomputable results on disk: addressed by content, atomic, locked, hashed and limited in size."""
