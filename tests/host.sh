#!/usr/bin/env bash
# host.sh NAME HOSTS COMMAND...: run a command as a host of that name, with its own /etc/hosts;
# started by `unshare --uts --mount`, so that this machine keeps its own.
set -euo pipefail
hostname "$1"
mount --bind "$2" /etc/hosts
shift 2
exec "$@"
