"""The tables that commands print."""
