"""`pareo parallel`: ways to use all cores, compared."""
