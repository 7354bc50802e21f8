"""Files, locks, child processes, connections and facts of this machine."""
