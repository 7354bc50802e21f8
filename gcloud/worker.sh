#!/bin/bash
# Steps of a job on one TPU VM; its launcher copies this file there and calls it:
#
#   worker.sh FOLDER install BACKENDS [PYTHON]    install Python, JAX and libtpu; Julia and Reactant;
#                                                 Ray, if it is one of BACKENDS
#   worker.sh FOLDER run BACKEND PLATFORM DEVICES STALL INDEX COUNT ADDRESS PROGRAM...
#                                                 read the run's secret from the first line of input
#   worker.sh FOLDER ray PORT INDEX HEAD          start this VM's node of a Ray cluster, which stays;
#                                                 read the cluster's token from the first line of input
#   worker.sh FOLDER results                      write an archive of logs and results to the output
#
# Each prints a last line "pyreactant-worker-done STATUS" (results: on standard error). A connection
# that ends without that line counts as a failure.
set -uo pipefail

folder=$(realpath -m "${1:?}") action=${2:?}
shift 2
here=$(dirname "$(realpath "$0")")

julia_version=1.12.1
julia_sha256=7d2add9ee74ee2f12b5c268bc194794cc52ea440f8687fbab29db6afefbf69b7
python_version=3.12

# Without this, gRPC looks for the coordinator behind a web proxy, and Julia crashes because of the
# allocator that Google's images preload.
clean_environment() {
  unset http_proxy https_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY
  export LD_PRELOAD='' OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}
}

python_of() {
  if [[ -s $folder/python ]]; then cat "$folder/python"; else echo "$folder/venv/bin/python"; fi
}

install() {
  local backends=$1 given=${2:-}
  warn_of_permission
  if [[ $given ]]; then
    printf '%s\n' "$given" >"$folder/python"
  else
    python3 -m pip install --quiet --target "$folder/uv" --require-hashes -r "$here/uv.txt" || return
    "$folder/uv/bin/uv" venv --quiet --python "$python_version" "$folder/venv" || return
    "$folder/uv/bin/uv" pip install --quiet --python "$folder/venv" --require-hashes \
      -r "$here/requirements.txt" || return
  fi
  PYTHONPATH=$folder/code "$(python_of)" -c 'import pyreactant; print(pyreactant.__version__)' ||
    return
  local wanted=$folder/code/work/requirements.txt # of a job, see pyreactant/runs
  if [[ -s $wanted && $given ]]; then
    "$given" -m pip install --quiet --target "$folder/requirements" -r "$wanted" || return
  elif [[ -s $wanted ]]; then
    "$folder/uv/bin/uv" pip install --quiet --python "$folder/venv" -r "$wanted" || return
  fi
  if [[ " $backends " == *" ray "* && ! $given ]]; then
    "$folder/uv/bin/uv" pip install --quiet --python "$folder/venv" --require-hashes \
      -r "$here/ray.txt" || return
  fi
  if [[ " $backends " == *" reactant "* && ! -s $folder/python ]]; then
    install_julia || return
    # The setup installs libtpu for Reactant, and the environment has no pip.
    PATH=$folder/uv/bin:$PATH PYTHONPATH=$folder/code LD_PRELOAD='' "$(python_of)" -m pyreactant \
      setup --gpu none --julia "$folder/julia/bin/julia" || return
  fi
}

# expire.sh has asked at boot.
warn_of_permission() {
  local answer=${PYREACTANT_STATE_FOLDER:-/var/lib/pyreactant}/permission
  if [[ $(cat "$answer" 2>/dev/null) == 403 ]]; then
    echo "warning: this VM may not delete its queued resource (403), so nothing ends the cost if" \
      "the machine that created it is lost; give the VM's service account roles/tpu.admin"
  fi
}

install_julia() {
  local archive=$folder/julia.tar.gz
  curl -fsSL --retry 5 -o "$archive" "https://julialang-s3.julialang.org/bin/linux/x64/${julia_version%.*}/julia-$julia_version-linux-x86_64.tar.gz" || return
  if ! echo "$julia_sha256  $archive" | sha256sum --check --status; then
    echo "the archive of Julia $julia_version has the wrong checksum; run the job again" >&2
    return 3
  fi
  mkdir -p "$folder/julia" && tar -xzf "$archive" -C "$folder/julia" --strip-components=1 &&
    rm "$archive"
}

run() {
  local backend=$1 platform=$2 devices=$3 stall=$4 index=$5 count=$6 address=$7 secret status
  shift 7
  IFS= read -r secret
  clean_environment
  cd "$folder/code" || return
  mkdir -p "$folder/runs" "$folder/results"
  export PYREACTANT_SECRET=$secret PYREACTANT_BACKEND=$backend
  export PYTHONPATH=$folder/code:$folder/requirements
  export PYREACTANT_PROCESS_INDEX=$index PYREACTANT_NUM_PROCESSES=$count
  export PYREACTANT_COORDINATOR_ADDRESS=$address PYREACTANT_PLATFORM=$platform
  export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-1}
  if [[ -d $folder/julia/bin ]]; then export PATH=$folder/julia/bin:$PATH; fi
  local options=(--out "$folder/runs/$backend" --heartbeat-timeout 8 --stall-timeout "$stall")
  if [[ $devices != 0 ]]; then options+=(--devices-per-process "$devices"); fi
  "$(python_of)" -m pyreactant run "${options[@]}" -- "$@" </dev/null &
  local child=$!
  # Standard input closes when the launcher is gone; then the program must end, too.
  {
    while IFS= read -r _; do :; done
    kill -TERM "$child" 2>/dev/null
    sleep 20
    kill -KILL "$child" 2>/dev/null
  } <&0 &
  local watcher=$!
  wait "$child"
  status=$?
  kill "$watcher" 2>/dev/null
  return "$status"
}

# Worker 0 is the head. The token lies where Ray looks for it, so that shells on the VM have it too.
start_ray() {
  local port=$1 index=$2 head=$3 token
  IFS= read -r token
  clean_environment
  (umask 077 && mkdir -p "$HOME/.ray" && printf '%s' "$token" >"$HOME/.ray/auth_token") || return
  export RAY_AUTH_MODE=token PYTHONPATH=$folder/code:$folder/requirements
  local options=(--disable-usage-stats)
  if [[ $index == 0 ]]; then
    options+=(--head --port="$port" --node-ip-address="$head" --include-dashboard=false)
  else
    options+=(--address="$head:$port")
  fi
  "$(python_of)" -m ray.scripts.scripts start "${options[@]}" </dev/null
}

results() {
  local parts=()
  for part in runs results; do
    if [[ -d $folder/$part ]]; then parts+=("$part"); fi
  done
  tar -czf - -C "$folder" --ignore-failed-read "${parts[@]}" </dev/null
}

case $action in
  install) install "$@" ;;
  run) run "$@" ;;
  ray) start_ray "$@" ;;
  results) results ;;
  *) echo "the action must be install, run, ray or results, got $action" >&2 && exit 2 ;;
esac
status=$?
# 255 means a failure of ssh itself, after which gcloud would run the command up to ten times.
if ((status == 255)); then status=254; fi
if [[ $action == results ]]; then exec >&2; fi
echo "pyreactant-worker-done $status"
exit "$status"
