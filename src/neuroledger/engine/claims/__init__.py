"""Claims: what records say about them, and the looks at which they said so."""
