#!/usr/bin/env bash
# `millrace run --dry-run`: text and JSON, precedence, Hydra syntax, bad files; DLIO's and MLPerf Storage's own files where
# they lie beside the repository.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
# bad STATUS TEXT ARGS...
bad() {
    local want=$1 text=$2 rc=0
    shift 2
    $MILLRACE run --dry-run "$@" >"$tmp/out" 2>"$tmp/err" || rc=$?
    [ "$rc" = "$want" ] || fail "$*: exit $rc, not $want: $(cat "$tmp/err")"
    grep -qF -- "$text" "$tmp/err" || fail "$*: no '$text' in: $(cat "$tmp/err")"
    [ ! -s "$tmp/out" ] || fail "$*: an error with output"
}

MILLRACE_READER_READ_THREADS=6 $MILLRACE run --dry-run workload=unet3d_h100 ++workload.reader.batch_size=4 --ranks 2 --json \
    >"$tmp/a.json" 2>"$tmp/err"
python3 - "$tmp/a.json" <<'PY' || fail "dry run as JSON"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["schema"] == "millrace.dry_run/1"
c, p = d["config"], d["plan"]
assert c["reader.batch_size"] == {"value": 4, "origin": "override", "where": "++workload.reader.batch_size"}
assert c["reader.read_threads"]["value"] == 6 and c["reader.read_threads"]["origin"] == "environment"
assert c["dataset.format"]["origin"] == "file" and c["dataset.format"]["where"].rsplit(":", 1)[1].isdigit()
assert c["train.seed"] == {"value": 123, "origin": "default"}
assert p["ranks"] == 2 and p["steps_per_epoch"] == 21 and p["total_steps"] == 105 and p["dataset_bytes"] == 24628905504
assert p["checkpoint"]["model_bytes"] == 499153191
assert abs(p["need_per_accelerator_bytes_per_s"] - 4 * 146600628 / 0.323) < 1
assert any("sample_shuffle" in n for n in d["notes"])
PY
grep -q '^millrace: note: reader.sample_shuffle' "$tmp/err" || fail "no note on stderr"
$MILLRACE -q run --dry-run workload=unet3d_h100 >"$tmp/out" 2>"$tmp/err"
[ ! -s "$tmp/err" ] || fail "-q is not quiet"
grep -q 'reader.batch_size .*= 7 .*# file .*unet3d_h100.yaml:[0-9]' "$tmp/out" || fail "no origin in the text"
$MILLRACE run --dry-run | grep -q 'workload (defaults only)' || fail "no workload at all"

bad 2 "did you mean 'reader.batch_size'?" ++workload.reader.batchsize=1
bad 2 "did you mean 'reader.batch_size'?" dataset.batch_size=1
bad 2 "bad value '-3' for 'reader.batch_size': must be between 1 and" reader.batch_size=-3
bad 2 "there is no workload 'unet3d_h10'" workload=unet3d_h10
bad 2 "bad value '0' for 'dataset.parquet.row_group_size'" workload=flux_b200 dataset.parquet.row_group_size=0
bad 5 "cannot read '$tmp/absent.yaml'" "$tmp/absent.yaml"
bad 2 "is not a regular file" "$tmp/"
bad 2 "not one full batch" reader.batch_size=1000
rc=0; $MILLRACE run workload=default workflow.generate_data=false --data "$tmp/none" --out "$tmp/results" 2>"$tmp/err" || rc=$?
[ "$rc" = 5 ] && grep -q "hint: make it with 'millrace gen $tmp/none workload=default" "$tmp/err" || fail "run without data: $(cat "$tmp/err")"

printf 'reader:\n  batch_size: 2\n  batch_size: 3\n' >"$tmp/f.yaml"
bad 2 "in $tmp/f.yaml:3" "$tmp/f.yaml"
printf 'reader:\n\tbatch_size: 2\n' >"$tmp/f.yaml"
bad 2 "a tab" "$tmp/f.yaml"
printf 'reader: {batch_size: "\xff"}\n' >"$tmp/f.yaml"
bad 4 "UTF-8" "$tmp/f.yaml"
{ echo 'a: &a [x, x, x, x, x, x, x, x, x, x]'; p=a
  for n in b c d e f g h; do echo "$n: &$n [*$p, *$p, *$p, *$p, *$p, *$p, *$p, *$p, *$p, *$p]"; p=$n; done; } >"$tmp/f.yaml"
bad 4 "too many nodes" "$tmp/f.yaml"
head -c 5000000 /dev/zero | tr '\0' '#' >"$tmp/f.yaml"
bad 4 "too large" "$tmp/f.yaml"
printf 'reader: {batch_size: 2, qqq: 1}\n' >"$tmp/f.yaml"
bad 2 "unknown key 'reader.qqq'" "$tmp/f.yaml"
$MILLRACE run --dry-run --lenient "$tmp/f.yaml" 2>"$tmp/err" >/dev/null || fail "--lenient"
grep -q "unknown key 'reader.qqq'.*ignored" "$tmp/err" || fail "--lenient says nothing"
$MILLRACE run --dry-run storage.storage_options.secret_access_key=hunter2 --json 2>&1 | grep -q hunter2 && fail "a secret is shown"

# relative folders begin at storage_root; what changes nothing is said
$MILLRACE run --dry-run storage.storage_root=/mnt/x dataset.data_folder=d checkpoint.checkpoint_folder=/c reader.computation_threads=3 >"$tmp/out" 2>"$tmp/err" || fail "storage_root"
grep -qE "dataset.data_folder += /mnt/x/d " "$tmp/out" && grep -qE "checkpoint.checkpoint_folder += /c " "$tmp/out" || fail "storage_root: $(grep folder "$tmp/out")"
cat "$tmp/out" "$tmp/err" | grep -q "reader.computation_threads changes nothing here" || fail "a key without effect is not named"

# without compute time there is no rate to need
$MILLRACE -q run --dry-run train.computation_time=0 >"$tmp/zero" || fail "computation_time 0: status $?"
! grep -nwiE 'inf|nan|-nan' "$tmp/zero" || fail "the line above has a number that is none"

shared=$MR_SOURCE_DIR/../shared/data
n=0
for f in "$shared"/dlio-workloads/*.yaml "$shared"/mlperf-workloads/*.yaml; do
    [ -e "$f" ] || continue
    $MILLRACE -q run --dry-run "$f" >/dev/null 2>"$tmp/err" || fail "$f: $(cat "$tmp/err")"
    sed 's/^\( *\)name:/\1nmae:/; s/^\( *\)num_files_train:/\1num_file_train:/' "$f" >"$tmp/f.yaml"
    bad 2 "did you mean 'model.name'?" "$tmp/f.yaml"
    n=$((n + 1))
done
[ "$n" -gt 0 ] || { echo "run_dry: ok; SKIP: the part with ../shared/data/*-workloads, which is not there"; exit 0; }
echo "run_dry: ok, $n files of DLIO and MLPerf Storage"
