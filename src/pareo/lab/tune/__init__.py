"""`pareo tune`: the result of a search, and what it says."""
