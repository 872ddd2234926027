#!/usr/bin/env bash
# The wire inside other people's processes, over loopback: in Python, in forked ranks, with our own tracer preloaded; in
# test-full also with torch imported and under mpirun, where the addresses go through MPI.
set -eu
cd "$(dirname "$0")/../.."
build=$(cd "${MR_BINARY_DIR:-build}" && pwd)
[ -e "$build/lib/millrace_wire_ucx.so" ] || { echo "SKIP: this build has no wire module"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export UCX_TLS=tcp
bad=0
check() { # name, result of rank 0
    grep -q '"ok": 200,.*"wrong": 0,' "$2" && { echo "$1: 200 samples"; return; }
    echo "FAILED: $1"
    cat "$folder"/*
    bad=1
}

# Python; a library built with ASan needs its runtime loaded before, so that is left to the tests in C
if ! nm -D "$build/tests/wire_node_python.so" | grep -q __asan_init; then
    cat >"$folder/guest.py" <<'PY'
import ctypes, os, signal, sys, threading
try:
    if os.environ.get("MR_TEST_FULL") != "1":
        raise ImportError
    import torch
    print("with torch", torch.__version__, file=sys.stderr)
except ImportError:
    print("without torch", file=sys.stderr)
words = [b"wire_node"] + [w.encode() for w in sys.argv[2:]]
library = ctypes.CDLL(sys.argv[1])
argv = (ctypes.c_char_p * (len(words) + 1))(*words, None)
before = signal.getsignal(signal.SIGINT)
code = library.wire_node_main(len(words), argv)
assert signal.getsignal(signal.SIGINT) is before and threading.active_count() == 1
sys.exit(code)
PY
    python=python3
    [ -x /usr/bin/python3 ] && python=/usr/bin/python3 # the one that scripts/setup installs PyTorch for
    $python "$folder/guest.py" "$build/tests/wire_node_python.so" 1 2 127.0.0.1 28100 ask=0 >"$folder/1" 2>&1 &
    $python "$folder/guest.py" "$build/tests/wire_node_python.so" 0 2 127.0.0.1 28100 count=200 >"$folder/0" 2>&1 || bad=1
    wait $! || bad=1
    check "inside Python, $(grep -h '^with' "$folder/0")" "$folder/0"
fi

# forked ranks, and MPI
"$build/tests/wire_node" 0 2 fork 0 count=200 >"$folder/0" 2>&1 || bad=1
check "ranks that were forked" "$folder/0"
if [ "${MR_TEST_FULL:-}" = 1 ]; then
    (
        . tests/mpi/launchers.sh
        # shellcheck disable=SC2154 # launchers: launchers.sh
        for kind in $launchers; do
            start $kind 2 "$build/tests/wire_node" 0 0 mpi 0 count=200 >"$folder/0" 2>&1 || true
            check "ranks of $kind" "$folder/0"
        done
        exit $bad
    ) || [ $? = 77 ] || bad=1
fi

# our tracer, in both nodes
"$build/bin/millrace" trace --out "$folder/traced" -- "$build/tests/wire_node" 1 2 127.0.0.1 28140 ask=0 >"$folder/1" 2>&1 &
"$build/bin/millrace" trace --out "$folder/traced0" -- "$build/tests/wire_node" 0 2 127.0.0.1 28140 count=200 >"$folder/0" 2>&1 || bad=1
wait $! || bad=1
rm -rf "$folder/traced" "$folder/traced0"
check "under our tracer" "$folder/0"
exit $bad
