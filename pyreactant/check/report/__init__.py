"""The report of a cross-check: data, text, page."""
