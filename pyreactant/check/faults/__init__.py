"""Which kind of fault explains a wrong block."""
