"""Language: words and sentences that were heard, read or typed."""
