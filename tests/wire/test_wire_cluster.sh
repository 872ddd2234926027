#!/usr/bin/env bash
# The wire between hosts, which are network namespaces made here: bytes on the link, and what happens when a node is
# killed, stopped, or cut off in the middle of transfers.
set -eu
cd "$(dirname "$0")/../.."
build=${MR_BINARY_DIR:-build}
[ -e "$build/lib/millrace_wire_ucx.so" ] || { echo "SKIP: this build has no wire module"; exit 77; }
. tests/wire/namespaces.sh
cluster_enter tests/wire/test_wire_cluster.sh
cluster_make 3
node=$PWD/$build/tests/wire_node
case $build in /*) node=$build/tests/wire_node ;; esac
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
bad=0
port=29400

# figures FILE: the JSON line's figures as shell variables late, gone, ok, ...
figures() {
    [ -s "$1" ] || { echo "no result in $1"; cat "$folder"/*.err; exit 1; }
    eval "$(python3 -c 'import json, sys
for k, v in json.load(open(sys.argv[1])).items():
    print(f"{k.replace(chr(32), chr(95))}={int(v)}")' "$1")"
}
expect() { # what, condition
    if ! (($2)); then
        # shellcheck disable=SC2154 # figures sets them by eval
        echo "FAILED: $1: not $2 (ok=$ok late=$late gone=$gone refused=$refused corrupt=$corrupt wrong=$wrong timeouts=$timeouts longest=$longest_ms ms)"
        bad=1
    fi
}
start() { # node, world, options...: in the background, its pid in pids[node]
    local i=$1 world=$2
    shift 2
    (on "$i" "$node" "$i" "$world" 10.77.0.1 $port "$@" >"$folder/$i.json" 2>"$folder/$i.err") &
    pids[$i]=$!
}

# three nodes, each asks the next one, every byte compared and counted on the link
before=$(link_bytes 0)
for i in 0 1 2; do start $i 3 ask=1 count=300; done
wait "${pids[@]}"
for i in 0 1 2; do
    figures "$folder/$i.json"
    expect "three nodes: node $i" "ok == 300 && wrong == 0 && timeouts == 0"
done
bytes=$(($(link_bytes 0) - before))
# what node 0 asked for, and the acknowledgements of what it sent
expect "bytes on the link: $bytes" "$bytes > 300 * 131072 && $bytes < 300 * 131072 * 115 / 100"

# One asker; node 1 serves and something happens to it in the middle. Nothing may take longer than deadline + 3 stalls.
trouble() { # name, command, size (from 256 KiB on by rendezvous, so some are cut in the middle)
    local name=$1
    port=$((port + 20))
    start 0 2 ms=900 deadline_ms=300 stall_ms=300 barrier=0 size=$3
    start 1 2 ask=0 size=$3
    for _ in $(seq 1000); do # the connection is there; how long that takes is not what is tested
        ! grep -q '^asking' "$folder/0.err" || break
        sleep 0.02
    done
    sleep 0.3
    eval "$2"
    { wait "${pids[0]}"; } 2>/dev/null || { echo "FAILED: $name: node 0 ended with $?"; cat "$folder/0.err"; bad=1; }
    figures "$folder/0.json"
    expect "$name" "ok > 20 && wrong == 0 && corrupt == 0 && late <= 1 && timeouts <= 1 && late + gone + refused > 0 && longest_ms < 1300"
    echo "$name: ok $ok, late $late, gone $gone, refused $refused, longest $longest_ms ms"
    kill -9 "${pids[1]}" 2>/dev/null || true
    { wait "${pids[1]}"; } 2>/dev/null || true
}
trouble "killed" 'kill -9 ${pids[1]}' 131072
trouble "stopped" 'kill -STOP ${pids[1]}' 400000
trouble "link cut" 'ip -n n1 link set v1 down' 400000
ip -n n1 link set v1 up

# a slow link is not a dead peer: 8 MB/s, 32 samples of 128 KiB in flight are half a second
if tc -n n1 qdisc add dev v1 root tbf rate 64mbit burst 64kb latency 400ms 2>/dev/null; then
    port=$((port + 20))
    start 0 2 count=40 deadline_ms=5000
    start 1 2 ask=0
    wait "${pids[0]}" "${pids[1]}"
    figures "$folder/0.json"
    expect "slow link" "ok == 40 && wrong == 0 && timeouts == 0"
else
    echo "no tbf in this kernel: the slow link is left out"
fi
[ $bad = 0 ] && echo "wire: three nodes, and one that was killed, stopped, cut off"
exit $bad
