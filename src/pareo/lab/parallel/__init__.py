"""`pareo parallel`: strategies to use all cores, compared with one worker."""
