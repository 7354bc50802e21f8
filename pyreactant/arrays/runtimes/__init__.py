"""The runtime of this process, and the operations on its arrays."""
