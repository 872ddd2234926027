#!/usr/bin/env bash
# The presets of object storage, scaled down, against a server: their own bucket and keys of the workload file; every sample is
# read in its place (--verify), from the bucket. test-label: once
set -eu
# shellcheck source=../s3/server.sh
. "$(dirname "$0")/../s3/server.sh"
dir=$(mktemp -d)
trap 'stop_server; rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED ($preset): $*"; cat err 2>/dev/null || true; exit 1; }
start_server
make_bucket s3pytorchconnector
n=0
for preset in $(millrace workloads list | grep -o '[a-z0-9_]*_s3'); do
    admin PUT /_reset >/dev/null
    millrace run "$preset" --generate --verify --out "$preset" dataset.num_files_train=28 dataset.record_length_bytes=20000 \
        dataset.record_length_bytes_resize=0 train.epochs=2 train.computation_time=0.001 >out 2>err || fail "run: $(tail -3 out)"
    [ "$(stat_of data_bytes)" -ge $((2 * 28 * 20000)) ] || fail "$(stat_of data_bytes) bytes came from the bucket"
    ! find . -name '*.npz' | grep -q . || fail "data lie on a disk"
    n=$((n + 1))
done
[ $n = 3 ] || fail "$n presets, not 3"
echo passed
