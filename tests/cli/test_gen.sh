#!/usr/bin/env bash
# millrace gen: idempotent, refuses another spec, repairs, same bytes whatever threads and ranks, eval split, workloads, JSON.
set -eu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
fail() { echo "FAILED: $1"; exit 1; }
tree() { (cd "$1" && find . -type f | LC_ALL=C sort | xargs sha256sum | sha256sum); }
gen() { "$MILLRACE" gen "$@" 2>err || { cat err; return 1; }; }
expect() { # status, command...
    local want=$1 have=0
    shift
    "$@" >out 2>err || have=$?
    [ "$have" = "$want" ] || { cat out err; fail "exit status of '$*': want $want, have $have"; }
}

args="--format npz --files 9 --size 20KB --size-stdev 3KB --labels 10 --subfolders 2 --eval-files 3"
gen a $args --threads 1 >/dev/null
want=$(tree a)
[ -f a/train/manifest.mrm ] && [ -f a/valid/manifest.mrm ] || fail "manifests"
[ -f a/train/1/img_3_of_9.npz ] || fail "file names"
for n in 2 3 7; do
    gen b$n $args --ranks $n --threads 2 >/dev/null
    [ "$(tree b$n)" = "$want" ] || fail "bytes depend on ranks ($n)"
    gen c$n $args --threads $n >/dev/null
    [ "$(tree c$n)" = "$want" ] || fail "bytes depend on threads ($n)"
done

gen a $args | grep -q 'already complete' || fail "idempotence"
[ "$(tree a)" = "$want" ] || fail "a complete set was touched"
expect 2 "$MILLRACE" gen a ${args/20KB/30KB}
grep -q 'size is 20000 there, 30000 asked' err || fail "differences are not named: $(cat err)"
[ "$(tree a)" = "$want" ] || fail "a refused command changed the set"

rm a/train/0/img_2_of_9.npz
printf 'x' | dd of=a/train/1/img_5_of_9.npz bs=1 seek=700 conv=notrunc status=none
gen a $args | grep -q 'wrote 1' || fail "a missing file is not written again"
expect 4 "$MILLRACE" verify a
grep -q 'img_5_of_9.npz: wrong content at offset 700: want' out || { cat out; fail "verify does not name the byte"; }
gen a $args --repair | grep -q 'wrote 1' || fail "repair"
[ "$(tree a)" = "$want" ] || fail "repair is not byte-identical"
expect 0 "$MILLRACE" verify a

gen a $args --seed 5 --overwrite >/dev/null
[ "$(tree a)" != "$want" ] || fail "overwrite changed nothing"
expect 0 "$MILLRACE" verify a

[ -f a/valid/manifest.mrm ] || fail "the evaluation set is gone"
gen a ${args/--eval-files 3/} --overwrite --seed 6 >/dev/null
[ ! -e a/valid ] || fail "an evaluation set that nobody asked for is left behind"
gen a $args --seed 5 --overwrite >/dev/null

# -q: no progress, not even the last line.
"$MILLRACE" gen q -q --format npz --files 3 --size 10KB 2>err >/dev/null || fail "gen -q"
"$MILLRACE" verify -q q 2>>err >/dev/null || fail "verify -q"
[ ! -s err ] || { cat err; fail "-q is not quiet"; }

# One writer at a time: the lock of a living process is honoured, one that a dead process left behind is not.
mkdir -p two/train && : >two/train/.millrace-gen.lock
flock two/train/.millrace-gen.lock sleep 30 &
holder=$!
while flock -n two/train/.millrace-gen.lock true; do sleep 0.05; done
expect 5 "$MILLRACE" gen two $args
grep -q 'another process is writing' err || { cat err; fail "two writers at once"; }
kill "$(ps -o pid= --ppid $holder)" "$holder" 2>/dev/null || true
wait "$holder" 2>/dev/null || true
while ! flock -n two/train/.millrace-gen.lock true; do sleep 0.05; done
gen two $args >/dev/null
[ "$(tree two)" = "$want" ] || fail "the lock file is left behind"

mkdir foreign foreign/train && echo mine >foreign/train/data.txt
expect 2 "$MILLRACE" gen foreign $args
grep -q 'data.txt' err || fail "foreign files are not named"

expect 2 "$MILLRACE" gen bad --format npz --size-stdev 10 --dims 4x4
expect 2 "$MILLRACE" gen bad --format jpeg --samples-per-file 3
expect 2 "$MILLRACE" gen bad --format nothing
expect 2 "$MILLRACE" gen bad --store null
expect 5 "$MILLRACE" gen bad --files 1000000 --size 60GiB
grep -q 'need .*have' err || fail "does not say what is needed and what is there"
[ ! -e bad ] || fail "a refused set left something"
expect 5 "$MILLRACE" gen /proc/nothing --files 1 --overwrite

"$MILLRACE" gen w workload=unet3d_h100 ++workload.dataset.num_files_train=2 dataset.record_length_bytes=50000 \
    dataset.record_length_bytes_stdev=1000 --files 3 --json >out 2>err || { cat err; fail "workload"; }
python3 - <<'PY' || fail "json"
import json
d = json.load(open("out"))
assert d["schema"] == "millrace.gen/1"
s = d["splits"][0]
assert s["files"] == 3 and s["format"] == "npz" and s["files_written"] == 3 and not s["already_complete"], s
PY
"$MILLRACE" gen /nonexistent/x workload=cosmoflow_a100 --dry-run 2>err | grep -q '524,288 tfrecord files' || { cat err; fail "dry run"; }
"$MILLRACE" gen "$dir/big" --files 100000 --size 60GiB --dry-run 2>err | grep -q 'does not fit' || fail "dry run does not say that it does not fit"
[ ! -e /nonexistent ] || fail "dry run wrote"

"$MILLRACE" show a >out 2>err && grep -q '^samples  *9 in 9 files, 1 each' out || { cat out; fail "show"; }
"$MILLRACE" show a 4 --json >out && python3 -c 'import json; d=json.load(open("out")); assert d["sample"]==4 and 0<=d["label"]<10, d' || fail "show sample"
"$MILLRACE" cat a 4 >payload && [ "$(wc -c <payload)" = "$(python3 -c 'import json; print(json.load(open("out"))["length_bytes"])')" ] || fail "cat"
expect 2 "$MILLRACE" cat a 9
expect 2 "$MILLRACE" show a minus
expect 4 "$MILLRACE" show foreign
echo passed
