"""Time per image and memory against the batch size, for any network and contestants.

Processes that are measured import `runner`, hence this package: nothing is imported here.
"""
