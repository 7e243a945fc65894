"""Loops that train a whole network without leaving compiled code."""
