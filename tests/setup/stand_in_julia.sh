#!/bin/sh
# A stand-in for Julia: it answers what juliapkg and `pyreactant setup` ask of it, and notes in
# the folder STAND_IN what it was asked. STAND_IN_FAIL says how it fails, STAND_IN_DELAY how many
# seconds a resolve and a compilation take, or only the one that STAND_IN_DELAYED names, and
# STAND_IN_REACTANT which Reactant is installed.
version=${STAND_IN_VERSION:-1.11.5}
case "$*" in
"--version") echo "julia version $version"; exit 0 ;;
esac
for argument; do
    case $argument in --project=*) project=${argument#--project=} ;; esac
done
for argument; do answer=$argument; done # the last one

note() {
    echo "$1" >>"$STAND_IN/asked"
    cp "$project/LocalPreferences.toml" "$STAND_IN/$1.toml" 2>/dev/null
    env >"$STAND_IN/$1.env"
    seconds=${STAND_IN_DELAY:-0}
    [ "${STAND_IN_DELAYED:-$1}" = "$1" ] || seconds=0
    sleep "$seconds" &
    echo $! >"$STAND_IN/$1.pid"
    wait $!
}

fail() {
    echo "ERROR: $1" >&2
    exit 1
}

runtime() {
    sed -n 's/^xla_runtime *= *"\(.*\)"/\1/p' "$project/LocalPreferences.toml"
}

case "$*" in
*Libdl.dlpath*) printf '/stand/in/lib/libjulia.so\0/stand/in/bin' ;;
*Pkg.Registry.update*)
    note resolve
    echo "   Updating registry" >&2
    case $STAND_IN_FAIL in
    network) fail "RequestError: Could not resolve host: pkg.example while requesting registries" ;;
    space) fail "IOError: write: no space left on device (ENOSPC)" ;;
    depot) fail "IOError: mkdir(\"/home/.julia\"): read-only file system (EROFS)" ;;
    cut) : >"$project/Project.toml"; : >"$project/Manifest.toml"; kill -9 0 ;;
    resolve) fail "something else" ;;
    esac
    printf 'julia_version = "%s"\n[[deps.Reactant]]\n' "$version" >"$project/Manifest.toml"
    ;;
*precompile.jl*)
    note precompile
    [ "$STAND_IN_FAIL" = precompile ] && fail "LoadError: UndefVarError"
    if ! grep -q '^Reactant = ' "$project/Project.toml" || [ ! -e "$project/Manifest.toml" ]; then
        echo 'absent = ["Reactant"]' >"$answer"
        exit 3
    fi
    available=true
    [ "$STAND_IN_FAIL" = binaries ] && available=false
    cat >"$answer" <<ANSWER
julia = "$version"
reactant = "${STAND_IN_REACTANT:-0.2.280}"
pythoncall = "0.9.37"
runtime = "$(runtime)"
[binaries]
version = "0.0.405+0"
available = $available
platform = "x86_64-linux-gnu-gpu+none"
ANSWER
    ;;
*) fail "the stand-in does not know: $*" ;;
esac
