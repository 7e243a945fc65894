"""The laboratory: it looks at the library from outside, and nothing in the library imports it."""
