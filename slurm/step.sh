#!/bin/bash
# step.sh BACKEND FOLDER PROGRAM...: one task of a step; srun starts it once per process.
set -euo pipefail
backend=$1 folder=$2
shift 2
# exec, so that signals of Slurm reach the supervisor and not this shell.
exec "$PYREACTANT_PYTHON" -m pyreactant run --backend "$backend" --out "$folder" \
  --start-timeout "${PYREACTANT_START_TIMEOUT:-300}" --grace "${PYREACTANT_GRACE:-20}" -- "$@"
