"""``python -m pyreactant.runs.places.slurm FOLDER``: keep a job, as its batch script."""

from . import main

main()
