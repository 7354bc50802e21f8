#!/bin/bash
# provenance.sh FOLDER PROGRAM...: write what a job runs with into plain files, without secrets.
set -uo pipefail
folder=$1
shift
mkdir -p "$folder"
printf '%q ' "$@" >"$folder/program"
scontrol show hostnames "$SLURM_JOB_NODELIST" >"$folder/nodes"
scontrol show job "$SLURM_JOB_ID" >"$folder/job"
# Leave out names that look like secrets, and proxies, whose addresses may contain passwords.
env -0 | grep -zviE '^[^=]*(secret|token|passw|credential|proxy|cookie|_key)[^=]*=' |
  sort -z | tr '\0' '\n' >"$folder/environment"
"$PYREACTANT_PYTHON" -m pip list --format=freeze --disable-pip-version-check \
  >"$folder/packages" 2>/dev/null || echo "pip is not installed" >"$folder/packages"
{
  "$PYREACTANT_PYTHON" --version
  srun --version
  uname -a
  if command -v julia; then julia --version; fi
  if command -v nvidia-smi; then nvidia-smi -L; fi
} >"$folder/versions" 2>&1
if git -C "$SLURM_SUBMIT_DIR" rev-parse HEAD >"$folder/git" 2>/dev/null; then
  git -C "$SLURM_SUBMIT_DIR" status --porcelain >>"$folder/git"
  git -C "$SLURM_SUBMIT_DIR" diff HEAD >"$folder/git.diff"
else
  echo "not a git repository" >"$folder/git"
fi
