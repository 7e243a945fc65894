"""The names of strategies, as results have them."""

# For one network, and for several of the same.
ALONE, SERIAL_TASKS = "one worker", "tasks, one after another"
INSIDE = "threads inside each step"

# For the fourth paper's three networks.
SERIAL = "one after another, 1 thread each"
ALL_CORES = "one after another, all cores each"
THREADS, PROCESSES = "a thread for each network", "a process for each network"
SCHEDULED_THREADS, SCHEDULED_PROCESSES = "threads, scheduled", "processes, scheduled"
