#!/bin/bash
# provenance.sh FOLDER PROGRAM...: write what a job runs with into plain files of this user alone.
set -uo pipefail
umask 077
folder=$1
shift
mkdir -p "$folder"
printf '%q ' "$@" >"$folder/program"
scontrol show hostnames "$SLURM_JOB_NODELIST" >"$folder/nodes"
job=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}
scontrol show job "$job" >"$folder/job"
# Variables that decide how a job runs, by name, because nobody knows all names of secrets; less
# those of Slurm, JAX and others whose names or values look like secrets.
known='(SLURM|SRUN|SBATCH|PYREACTANT|JAX|XLA|LIBTPU|TPU|MEGASCALE|JULIA|CUDA|NCCL|UCX|FI|OMPI_MCA|PMIX'
known+='|OMP|OPENBLAS|MKL|GLOO|TF_CPP|LC)_[A-Za-z0-9_]*|(NVIDIA|HIP|ROCR)_VISIBLE_DEVICES'
known+='|PATH|LD_LIBRARY_PATH|PYTHONPATH|VIRTUAL_ENV|CONDA_PREFIX|LOADEDMODULES|LANG|TZ|TMPDIR'
env -0 | grep -zE "^($known)=" |
  grep -zviE '^[^=]*(secret|token|pass|pwd|jwt|credential|cookie|auth|_key|_url)|://[^/]*@' |
  sort -z | tr '\0' '\n' >"$folder/environment"
# Not by pip, which environments of uv lack, and which takes four times as long.
"$PYREACTANT_PYTHON" -P -c '
from importlib.metadata import distributions
print(*sorted({f"{one.name}=={one.version}" for one in distributions()}, key=str.lower), sep="\n")
' >"$folder/packages" 2>&1
{
  "$PYREACTANT_PYTHON" --version
  srun --version
  uname -a
  if command -v julia; then julia --version; fi
  if command -v nvidia-smi; then nvidia-smi -L; fi
} >"$folder/versions" 2>&1
if git -C "$SLURM_SUBMIT_DIR" rev-parse HEAD >"$folder/git" 2>/dev/null; then
  git -C "$SLURM_SUBMIT_DIR" status --porcelain >>"$folder/git"
  if [[ ${PYREACTANT_GIT_DIFF:-0} == 1 ]]; then
    git -C "$SLURM_SUBMIT_DIR" diff HEAD >"$folder/git.diff"
  fi
else
  echo "not a git repository" >"$folder/git"
fi
