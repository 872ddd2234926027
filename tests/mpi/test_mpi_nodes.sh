#!/usr/bin/env bash
# One job over nodes that share no memory: network namespaces with host names and a /dev/shm of their own, Open MPI with an agent in
# place of ssh. Every rank reads what it reads as a forked rank, and the source, counted where it is, gives every byte once per epoch.
set -eu
cd "$(dirname "$0")/../.."
export MILLRACE_RUN_OVERWRITE=true ASAN_OPTIONS=detect_leaks=0 TSAN_OPTIONS=report_bugs=0
build=$(cd "${MR_BINARY_DIR:-build}" && pwd)
millrace=${MILLRACE:-$build/bin/millrace}
fail() { echo "FAIL: $*" >&2; exit 1; }
[ -f "$build/lib/millrace_mpi_openmpi.so" ] && mpirun --version 2>/dev/null | grep -q "Open MPI" ||
    { echo "SKIP: this build has no module for Open MPI, or this machine no mpirun of it"; exit 77; }
. tests/wire/namespaces.sh
cluster_enter tests/mpi/test_mpi_nodes.sh
cluster_make 3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: raw, num_files_train: 60, num_samples_per_file: 1, record_length_bytes: 5000, data_folder: d}
reader: {batch_size: 2, read_threads: 1, file_shuffle: seed, sample_shuffle: seed}
train: {epochs: 2}
Y
"$millrace" -q gen d --workload w.yaml >/dev/null 2>&1 || fail "the data set"
store() { echo "throttle(bandwidth=200MB,group=nodes,group_folder=$tmp):count(file=$tmp/$1):posix"; }
timeout 100 "$millrace" -q run w.yaml --ranks 6 --out f --no-ceiling --verify --store "$(store f.count)" >/dev/null 2>err || fail "forked ranks: $(cat err)"
before=$(link_bytes 1)
cluster_run 3 2 timeout 100 "$millrace" -q run w.yaml --out m --no-ceiling --verify --store "$(store m.count)" >/dev/null 2>err || fail "nodes: $(cat err)"
[ "$(link_bytes 1)" -gt "$before" ] || fail "nothing went over the links"
[ -z "$(find "$tmp" -mindepth 1 -maxdepth 1 -name '*throttle*')" ] || fail "the group's file is left"
python3 - <<'P' || fail "the counts"
import json, struct
a, b = (struct.unpack("7Q", open(k + ".count", "rb").read()) for k in "mf")
assert a[3] == b[3] >= 2 * 60 * 5000 and a[6] == b[6] == 0, (a, b)
a, b = (json.load(open(k + "/summary.json"))["millrace"] for k in "mf")
for k in ("ranks", "steps", "samples", "read_bytes"): assert a[k] == b[k], (k, a[k], b[k])
P
echo passed
