"""Model parallelism by neurons: every worker has a part of each dense layer."""
