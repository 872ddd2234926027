#!/usr/bin/env bash
# Samples of several fields in a workload: `run` makes, reads and compares every one of them, by the loader and by patterns; only
# what is named is read; a wrong byte in any field is found; sets that the workload does not describe are read by their names.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
dataset: {data_folder: d, format: hdf5, num_files_train: 3, num_samples_per_file: 16, fields: [data:f4:16x24x36, labels:i4:24x36:target, id:i8:-:other]}
reader: {batch_size: 4, read_threads: 2}
train: {epochs: 2}
Y
image=$((16 * 24 * 36 * 4)) mask=$((24 * 36 * 4))
run() { "$MILLRACE" -q run w.yaml --no-ceiling --out o "$@" >out 2>err || fail "run $*: $(cat err)"; }
figure() { python3 -c "import json; print(json.load(open('o/summary.json'))['millrace']['$1'])"; }

run --generate --verify
"$MILLRACE" show d/train | grep -q '^fields     3' || fail "the set has other fields: $("$MILLRACE" show d/train)"
for how in "reader.read_threads=0" "reader.read_type=memory" "reader.preprocess_time=0.0001" "--tiers ram=50MB" "pattern.unit=file" \
    "pattern.unit=record reader.sample_shuffle=seed" "pattern.unit=record pattern.sequential_samples=4 reader.transfer_size=5000" "--ranks 2"; do
    # shellcheck disable=SC2086
    run --verify $how
    [ "$(figure sample_bytes)" = $((2 * 48 * (image + mask))) ] || fail "$how: $(figure sample_bytes) bytes of fields"
done
run 'reader.fields=[labels]'
[ "$(figure read_bytes)" = $((2 * 48 * mask)) ] || fail "a field alone: $(figure read_bytes) bytes read"
run pattern.unit=record 'reader.fields=[labels,id]'
[ "$(figure read_bytes)" = $((2 * 48 * (mask + 8))) ] || fail "two fields by records: $(figure read_bytes) bytes read"

# what each field cost: in the summary, the text and the trace, where replaying the run gives the same
run
python3 -c "
import json
f = json.load(open('o/summary.json'))['millrace']['fields']
assert [x['name'] for x in f] == ['data', 'labels'], f
assert [x['stored_bytes'] for x in f] == [96 * $image, 96 * $mask] == [x['delivered_bytes'] for x in f], f
assert all(x['samples'] == 96 and x['decode_s'] >= 0 for x in f), f" || fail "fields in the summary"
grep -q '^  fields .* read, .* to the trainer; decoded in ' out && grep -q '^                labels ' out || fail "fields in the text: $(cat out)"
"$MILLRACE" report o >report 2>err || fail "report: $(cat err)"
grep -q "does not confirm" err && fail "summary and trace differ: $(cat err)"
"$MILLRACE" -q report o/trace.mrt --html page.html --json >report.json 2>err && python3 - <<'P' || fail "fields in the report: $(cat err)"
import json
run, told = json.load(open("o/summary.json"))["millrace"]["fields"], json.load(open("report.json"))["fields"]
assert sorted(x["name"] for x in run) == sorted(x["name"] for x in told) and told, told
for x in told:
    assert next(y for y in run if y["name"] == x["name"]) == x, (run, told)
assert [x["decode_s"] for x in told] == sorted((x["decode_s"] for x in told), reverse=True), told
assert "Fields of the samples" in open("page.html").read()
P
"$MILLRACE" export -f csv -o - o/trace.mrt | grep 'loader,field' | grep -q 'labels:stored_bytes' || fail "the loader's trace names no field"

# a set that the workload does not describe: its primary field, or what is named
other="dataset.fields=[] dataset.record_dims=[16,24,36] dataset.record_element_type=float32"
# shellcheck disable=SC2086
run $other
[ "$(figure sample_bytes)" = $((2 * 48 * image)) ] || fail "the primary field: $(figure sample_bytes)"
# shellcheck disable=SC2086
run $other 'reader.fields=["*"]'
[ "$(figure sample_bytes)" = $((2 * 48 * (image + mask))) ] || fail "all fields: $(figure sample_bytes)"

# refused: what is wrong, and where
refused() { # status, words of the message, words of the command
    local want=$1 text=$2 rc=0
    shift 2
    "$MILLRACE" -q run w.yaml --out o "$@" >out 2>err || rc=$?
    [ $rc = "$want" ] && grep -q "$text" err || fail "'$text' wanted, $rc: $(cat err)"
}
refused 2 "'reader.fields' names 'mask'.*" 'reader.fields=[mask]'
refused 2 "bad field 'a:f4' in 'dataset.fields'" 'dataset.fields=[a:f4]'
refused 2 "record_length_bytes_stdev must be 0" dataset.record_length_bytes_stdev=3
# shellcheck disable=SC2086
refused 2 "has no field 'mask'; it has 'data', 'labels', 'id'" $other 'reader.fields=[mask]'

# a wrong byte in the last field of a sample
python3 - d/train/img* <<'P'
import sys
path = sorted(sys.argv[1:])[-1]
data = bytearray(open(path, "rb").read())
data[-1000] ^= 1 # in the labels, or the ids behind them
open(path, "wb").write(data)
P
for how in "" "pattern.unit=record" "pattern.unit=file"; do
    rc=0
    # shellcheck disable=SC2086
    "$MILLRACE" -q run w.yaml --verify --no-ceiling --out o $how 'reader.fields=[data,labels,id]' >out 2>err || rc=$?
    [ $rc != 0 ] && grep -q "field 'labels'\|field 'id'" err || fail "a wrong byte, $how: $rc $(cat err)"
done
echo "fields of a run: ok"
