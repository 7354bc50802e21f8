"""Where a run can be: one file or folder for each place.

To add a place, write `NAME.py` with a frozen dataclass that inherits from `target.Target`, and name
it in `KINDS` of `runs/targets`. The command line makes its options from the fields.
"""
