"""Surface EMG sessions."""
