"""Many networks at once: in threads, in processes, as one population, on a Ray cluster."""
