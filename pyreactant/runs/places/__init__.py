"""Where a run can be: one file or folder for each place. `runs/targets` lists them."""
