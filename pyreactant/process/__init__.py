"""Who this process is, and its line to the supervisor."""
