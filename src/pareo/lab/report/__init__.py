"""The report of a race: one HTML file that needs nothing else and asks nobody for anything."""

from pareo.lab.report.page import html, write

__all__ = ["html", "write"]
