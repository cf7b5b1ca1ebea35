"""Libraries for Windlass, a job server. `windlass.sidejob`: long-lived jobs with ports, state and children."""
