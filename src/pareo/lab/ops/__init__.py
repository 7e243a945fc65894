"""The operator laboratory: every operator, on every device and in its peers, against its limit."""
