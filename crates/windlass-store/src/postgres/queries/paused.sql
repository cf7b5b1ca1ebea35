SELECT tenant, queue FROM {s}.paused
