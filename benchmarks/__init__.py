"""Measurements beside the commands: run one with `python -m benchmarks.NAME --help`."""
