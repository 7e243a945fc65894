"""Workers that train one network together: threads or processes, shared memory, the schedule."""
