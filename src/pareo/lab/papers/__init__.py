"""The five papers' experiments, with the figures that they published."""
