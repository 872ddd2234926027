#!/bin/bash
# Every backend and shim is in 'millrace help store', and a misspelt stack is refused with status 2 and the nearest name.
set -eu
millrace=${MILLRACE:-millrace}
[ -x "$millrace" ] || command -v "$millrace" >/dev/null || { echo "SKIP: no millrace binary"; exit 77; }
help=$("$millrace" help store)
for name in posix uring mmap memory null throttle fault trace; do
    grep -qE "^ *$name\b" <<<"$help" || { echo "'$name' is missing in 'millrace help store'"; exit 1; }
done
for option in aggregate stream_bandwidth metadata_rate nth corrupt capacity direct; do
    grep -qE "\b$option\b" <<<"$help" || { echo "option '$option' is missing in 'millrace help store'"; exit 1; }
done
check() { # stack, text expected on stderr
    local status=0 out
    out=$("$millrace" scan --store "$1" "$PWD" 2>&1) || status=$?
    [ "$status" = 2 ] || { echo "--store '$1': status $status, want 2: $out"; exit 1; }
    grep -qF "$2" <<<"$out" || { echo "--store '$1': '$2' is missing in: $out"; exit 1; }
}
check poisx "did you mean 'posix'"
check "throttle(bandwith=1MB):posix" "did you mean 'bandwidth'"
check "fault(nth=1,error=EIO)" "needs a backend"
check "posix:memory" "must come last"
