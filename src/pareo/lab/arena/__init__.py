"""`pareo arena`: races on networks that are drawn at random, and their distribution."""
