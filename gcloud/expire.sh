#!/bin/bash
# Startup script of a TPU VM: delete the queued resource when its lifetime is over, even if the
# machine that created it is gone. pyreactant sets RESOURCE and LIFETIME (seconds) above this line.
# Time counts from the VM's first boot by the VM's clock, so that other clocks do not matter.
set -u
: "${RESOURCE:?}" "${LIFETIME:?}"
metadata=${PYREACTANT_METADATA:-http://metadata.google.internal}
api=${PYREACTANT_TPU_API:-https://tpu.googleapis.com}
born=${PYREACTANT_STATE_FOLDER:-/var/lib/pyreactant}/born
limit=${PYREACTANT_ANSWER_LIMIT:-60} # seconds; without it, one call without an answer would be the last

mkdir -p "${born%/*}"
[[ -s $born ]] || date +%s >"$born"

# One call to the API about a resource: prints the status of the answer, 000 without one.
delete() {
  local token
  token=$(curl -sf --max-time "$limit" -H 'Metadata-Flavor: Google' \
    "$metadata/computeMetadata/v1/instance/service-accounts/default/token" |
    sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p')
  # The token goes through standard input, because every user can read command lines.
  printf 'header = "Authorization: Bearer %s"\n' "$token" |
    curl -s --max-time "$limit" -K - -o /dev/null -w '%{http_code}' -X DELETE "$api/v2/$1?force=true"
}

# Whether this VM may delete its resource: it deletes one that does not exist, for which it needs the
# same permission. 404 means yes, 403 no. worker.sh reads the answer during the installation.
(delete "${RESOURCE%/*}/pyreactant-none-$RANDOM$RANDOM" >"${born%/*}/permission") </dev/null &>/dev/null &

expire() {
  local left status pause=${PYREACTANT_EXPIRE_PAUSE:-60} longest
  longest=$((${pause%%.*} * 60 + 60))
  left=$(($(cat "$born") + LIFETIME - $(date +%s)))
  if ((left > 0)); then sleep "$left"; fi
  # Only 404 says that it is gone: an answer that promises a deletion may be followed by none.
  until status=$(delete "$RESOURCE") && [[ $status == 404 ]]; do
    if [[ $status == 403 ]]; then
      echo "$(date -u +%FT%TZ) this VM may not delete $RESOURCE (403)" >>"${born%/*}/expire.log"
    fi
    sleep "$pause"
    pause=$(awk -v p="$pause" -v most="$longest" 'BEGIN { p *= 1.5; print (p < most ? p : most) }')
  done
}
expire </dev/null >/dev/null 2>&1 &
disown -a
