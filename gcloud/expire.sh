#!/bin/bash
# Startup script of a TPU VM: delete the queued resource when its lifetime is over, even if the
# machine that created it is gone. pyreactant sets RESOURCE and LIFETIME (seconds) above this line.
# Time counts from the VM's first boot by the VM's clock, so that other clocks do not matter.
set -u
: "${RESOURCE:?}" "${LIFETIME:?}"
metadata=${PYREACTANT_METADATA:-http://metadata.google.internal}
api=${PYREACTANT_TPU_API:-https://tpu.googleapis.com}
born=${PYREACTANT_STATE_FOLDER:-/var/lib/pyreactant}/born

mkdir -p "${born%/*}"
[[ -s $born ]] || date +%s >"$born"

expire() {
  local left token
  left=$(($(cat "$born") + LIFETIME - $(date +%s)))
  if ((left > 0)); then sleep "$left"; fi
  while true; do
    token=$(curl -sf -H 'Metadata-Flavor: Google' \
      "$metadata/computeMetadata/v1/instance/service-accounts/default/token" |
      sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p')
    # The token goes through standard input, because every user can read command lines.
    printf 'header = "Authorization: Bearer %s"\n' "$token" |
      curl -s -K - -X DELETE "$api/v2/$RESOURCE?force=true" >/dev/null
    sleep "${PYREACTANT_EXPIRE_PAUSE:-60}"
  done
}
expire </dev/null >/dev/null 2>&1 &
disown
