#!/bin/bash
# Create TPU slices, run the sharded matmul on both runtimes, and delete the slices.
#
#   gcloud/run.sh gcloud/single-slice.env [options]      after editing the file
#   QR_ID=... PROJECT=... ZONE=... ACCELERATOR_TYPE=v6e-16 gcloud/run.sh [options]
#   gcloud/run.sh gcloud/single-slice.env -- train.py --steps 9      your own program
#
# The environment, or a file of exports, sets QR_ID, PROJECT, ZONE, ACCELERATOR_TYPE,
# RUNTIME_VERSION and SLICE_COUNT. The options are those of `pyreactant run --on tpu`, or without a
# program of `pyreactant crosscheck --on tpu`: --dry-run prints the plan, --keep is the only way to
# keep the slices, --help lists every option. Both runtimes run, unless --backends names one.
set -euo pipefail

here=$(dirname "$(realpath "$0")")
if [[ ${1:-} == *.env ]]; then
  if [[ ! -r $1 ]]; then
    echo "there is no file $1; start from gcloud/single-slice.env or gcloud/multi-slice.env" >&2
    exit 2
  fi
  # shellcheck source=/dev/null
  source "$1"
  shift
fi
python=${PYREACTANT_PYTHON:-$here/../.venv/bin/python}
if [[ ! -x $python ]]; then python=$(command -v "${PYREACTANT_PYTHON:-python3}"); fi
if ! "$python" -c 'import pyreactant, google.cloud.tpu_v2' 2>/dev/null; then
  echo "$python lacks pyreactant or Google's client; run: python -m pip install -e '.[tpu]', or" \
    "set PYREACTANT_PYTHON" >&2
  exit 3
fi
# What version 0.1 called its options here goes on to work.
options=() program=0
while (($#)) && ((!program)); do
  case $1 in
    --) program=1 ;;
    --retries | --retries=*) options+=("--max-restarts${1#--retries}") && shift ;;
    --accelerator-type | --accelerator-type=*)
      options+=("--topology${1#--accelerator-type}") && shift
      ;;
    --slice-count | --slice-count=*) options+=("--slices${1#--slice-count}") && shift ;;
    *) options+=("$1") && shift ;;
  esac
done
if ((program)); then
  exec "$python" -m pyreactant run --on tpu --backend jax,reactant \
    "${options[@]/#--backends/--backend}" "$@"
fi
exec "$python" -m pyreactant crosscheck --on tpu --backends jax,reactant "${options[@]}"
