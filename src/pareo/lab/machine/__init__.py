"""What this machine has and can do: memory, ceilings, counters, and the floors that follow."""
