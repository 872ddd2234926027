#!/usr/bin/env bash
# Repeated runs: --sweep prints one table, --find-max-accelerators finds the number the storage was shaped for, --virtual
# predicts without data.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
. "$(dirname "$0")/waiting.sh"
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true}
dataset: {format: npz, num_files_train: 96, record_length_bytes: 100000, data_folder: d}
reader: {batch_size: 2, read_threads: 2, sample_shuffle: seed}
train: {epochs: 2, computation_time: 0.02}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null 2>&1
quick=train.computation_time=0.001 # where it does not matter
"$MILLRACE" -q run w.yaml --sweep reader.batch_size=2,8 $quick --out o --json >s.json 2>err || fail "$(cat err)"
python3 - <<'P' || fail "sweep"
import json
d = json.load(open("s.json"))
assert d["schema"] == "millrace.sweep/1" and [p["value"] for p in d["points"]] == ["2", "8"] and d["complete"]
for p in d["points"]:
    m = json.load(open(p["results_folder"] + "/summary.json"))
    assert m["config"]["reader.batch_size"]["value"] == int(p["value"]) and abs(m["millrace"]["au"] - p["au"]) < 1e-12
P
"$MILLRACE" -q run w.yaml --sweep ranks=1,2 --ranks 3 $quick --out o >out 2>err || fail "sweep over an option: $(cat err)"
[ "$(grep -cE '^[12] ' out)" = 2 ] || fail "table: $(cat out)"
# several keys: every combination; a list is one value; asked for by a variable it is done once, too
"$MILLRACE" -q run w.yaml --sweep ranks=1,2 --sweep reader.batch_size=2,4 train.epochs=1 $quick --out o2 --json >s.json 2>err || fail "two keys: $(cat err)"
python3 - <<'P' || fail "two keys: $(cat s.json)"
import json
d = json.load(open("s.json"))
assert d["key"] == "ranks reader.batch_size" and [p["value"] for p in d["points"]] == ["1 2", "1 4", "2 2", "2 4"], d
for p in d["points"]:
    m = json.load(open(p["results_folder"] + "/summary.json"))
    assert [m["millrace"]["ranks"], m["config"]["reader.batch_size"]["value"]] == [int(x) for x in p["value"].split()]
P
"$MILLRACE" -q run w.yaml --sweep 'train.computation_time={type: normal, mean: 0.001, stdev: 0.0001},0.001' train.epochs=1 --out o3 --json >s.json 2>err || fail "$(cat err)"
python3 -c 'import json; d = json.load(open("s.json")); assert [p["value"] for p in d["points"]] == ["{type: normal, mean: 0.001, stdev: 0.0001}", "0.001"], d' || fail "values with commas"
MILLRACE_RUN_SWEEP=reader.batch_size=2,8 timeout "$(limit 60)" "$MILLRACE" -q run w.yaml train.epochs=1 $quick --out o4 >out 2>err || fail "sweep by a variable: $(cat err)"
[ "$(grep -cE '^[28] ' out)" = 2 ] || fail "sweep by a variable: $(cat out)"
rc=0; "$MILLRACE" -q run w.yaml --sweep nonsense --out o >out 2>err || rc=$?
[ $rc = 2 ] || fail "bad sweep: $rc"
rc=0; "$MILLRACE" -q run w.yaml --sweep reader.batch_size=0 --out o >out 2>err || rc=$?
[ $rc = 2 ] && grep -q batch_size err || fail "bad value in a sweep: $rc $(cat err)"
# a point that fails ends the sweep with its own error; what was measured before is told, ranks of a point say nothing
rc=0; "$MILLRACE" -q run w.yaml --no-ceiling --ranks 2 --sweep 'store=posix,fault(nth=5,error=EIO):posix,mmap' train.epochs=1 $quick --out o5 >out 2>err || rc=$?
[ $rc = 5 ] && grep -q "at point 'fault(nth=5,error=EIO):posix'" err && [ "$(grep -c "^posix " out)" = 1 ] && [ "$(grep -c AU out)" = 1 ] || fail "failing point: $rc $(cat out err)"
[ "$(grep -c "^millrace:" err)" = 1 ] && [ ! -e "o5/store=mmap" ] && [ -e "o5/store=posix/summary.json" ] || fail "failing point: $(cat err; ls o5)"
rc=0; "$MILLRACE" -q run w.yaml --sweep json=true,false --out early >out 2>err || rc=$?
[ $rc = 2 ] && [ ! -e early ] || fail "a sweep over what is no option of a job: $rc $(cat err)"
# memory of a point is its own, not that of a larger one before it
"$MILLRACE" -q run w.yaml --no-ceiling --sweep lookahead=40,1 reader.batch_size=8 train.epochs=1 $quick --out o6 --json >s.json 2>err || fail "$(cat err)"
python3 - <<'P' || fail "peak memory of points"
import json
d = json.load(open("s.json"))
rss = [json.load(open(p["results_folder"] + "/summary.json"))["millrace"]["per_rank"][0] for p in d["points"]]
assert rss[0]["slab_bytes"] > 20 * rss[1]["slab_bytes"] and rss[1]["peak_rss_bytes"] < rss[0]["peak_rss_bytes"] - 10e6, rss
P
# 30 MB/s serve three accelerators of 10 MB/s, not five; a busy machine may serve fewer, in the extreme none
"$MILLRACE" -q run w.yaml --find-max-accelerators --max-ranks 6 --out f --json --store "throttle(bandwidth=30MB,group=find$$):posix" \
    metric.au=0.7 >s.json 2>err || fail "$(cat err)"
python3 - <<'P' || fail "largest number of accelerators: $(cat s.json)"
import json, os
d = json.load(open("s.json"))
assert d["schema"] == "millrace.find_max/1" and d["max_accelerators"] <= 4, d["max_accelerators"]
assert d["max_accelerators"] >= 1 or not os.environ.get("MR_TEST_FULL"), d["max_accelerators"]
assert {d["max_accelerators"], d["max_accelerators"] + 1} - {0} <= {p["ranks"] for p in d["points"]}, d
for p in d["points"]:
    if p["ranks"] == d["max_accelerators"]: assert p["au"] >= 0.7
    if p["ranks"] == d["max_accelerators"] + 1: assert p["au"] < 0.7
P
# a search that is stopped tells what it has found
rm -rf f2
"$MILLRACE" -q run w.yaml --find-max-accelerators --max-ranks 6 --out f2 train.epochs=2 metric.au=0.0 --cache warm >out 2>err &
p=$!
ready $p && soon test -e f2/ranks=1/rank-0.steps.csv && soon test -e f2/ranks=2 || fail "the search does not begin: $(cat err)"
kill -INT $p; rc=0; wait $p || rc=$?
[ $rc = 130 ] && head -1 out | grep -q "^INCOMPLETE" && grep -q "^1  *1 .*\(pass\|none\)" out && grep -q "at least" out || fail "stopped search: $rc $(cat out err)"
! grep -q "^1  *1 .*none" out || grep -q "no verdict, because" out || fail "no verdict without a reason: $(cat out)"
# prediction: naive is slower than reading ahead, more storage is not slower; no data is needed
v() { "$MILLRACE" -q run resnet50_h100 dataset.num_files_train=16 --virtual --system lassen --ranks 2 --json "$@" | python3 -c 'import json,sys; d=json.load(sys.stdin); assert d["simulated"]; print(d["duration_s"])'; }
ahead=$(v); naive=$(v reader.read_threads=0)
python3 -c "assert $naive > 1.2 * $ahead, ($naive, $ahead)" || fail "naive $naive, staging $ahead"
rc=0; "$MILLRACE" -q run unet3d_a100 --virtual 2>err >out || rc=$?
[ $rc = 2 ] && grep -q "storage model" err || fail "virtual without a model: $rc"
# checkpoints: training and writing add up, by the model's bandwidth for as many writers; 15 % of the run for the study's hard disk
"$MILLRACE" -q run tf-ckpt --virtual --system hdd --json >out 2>err || fail "virtual checkpoints: $(cat err)"
python3 - <<'P' || fail "virtual checkpoints: $(cat out)"
import json
d = json.load(open("out")); c = d["checkpoint"]
assert c["saves"] == 2 and c["bytes"] == 600e6 and c["writers"] == 1
assert abs(c["save_s"] - 600 / 70.9) < 0.01 and abs(d["duration_s"] - d["training_s"] - 2 * c["save_s"]) < 1e-6
assert 0.14 < c["total_s"] / d["duration_s"] < 0.16 and d["read_bytes"] < 1e3
P
"$MILLRACE" -q run llama3_8b --virtual --system theta-lustre --json >out 2>err || fail "checkpoints only: $(cat err)"
python3 -c 'import json; d = json.load(open("out")); c = d["checkpoint"]; assert c["writers"] == 8 and abs(d["duration_s"] - 10 * (c["save_s"] + c["load_s"]) - 95) < 1e-6 * d["duration_s"], d' || fail "checkpoints only: $(cat out)"
# evaluation, a training cut short, reading everything first, and writing slower than reading
cat >slow.yaml <<'Y'
name: slow
pfs: {link: 100MB, bandwidth: {1: 100MB}, write: {1: 25MB}}
classes: [{name: staging, capacity: 1GB, threads: 2, read: {1: 10GB}}]
Y
p() { "$MILLRACE" -q run w.yaml --virtual --json "$@" >out 2>err || fail "virtual $*: $(cat err)"; }
said() { python3 -c "import json; d = json.load(open('out')); c = d['checkpoint']; e = d['evaluation']; assert $1, d" || fail "virtual: $1"; }
p --system slow.yaml; said "abs(d['training_s'] - 96 * 0.02) < 0.05 and abs(d['au'] - 1) < 0.02 and e['evaluations'] == 0"
p --system slow.yaml train.total_training_steps=60; said "abs(d['training_s'] - 60 * 0.02) < 0.05 and abs(d['samples_per_s'] - 100) < 4"
p --system slow.yaml workflow.evaluation=true dataset.num_files_eval=40 reader.batch_size_eval=4 evaluation.eval_time=0.1
said "e['evaluations'] == 2 and e['steps'] == 10 and abs(e['once_s'] - 1) < 0.1 and abs(d['duration_s'] - d['training_s'] - 2 * e['once_s']) < 1e-9"
p --system slow.yaml reader.read_type=memory --ranks 2
said "abs(d['preload_s'] - 2 * 9.6 / 100) < 1e-6 and abs(d['au'] - 1) < 1e-6 and d['read_bytes'] == 2 * 9.6e6"
p --system slow.yaml workflow.train=false workflow.checkpoint=true checkpoint.num_checkpoints_write=1 checkpoint.num_checkpoints_read=1 \
    checkpoint.time_between_checkpoints=0 model.model_size_bytes=50MB
python3 -c "import json; d = json.load(open('out')); c = d['checkpoint']; assert abs(c['save_s'] - 2) < 1e-6 and abs(c['load_s'] - 0.5) < 1e-6 and abs(d['duration_s'] - 2.5) < 1e-6, d" || fail "writing rate"
# samples of very different sizes do not change how long a step computes
p --system lassen dataset.record_length_bytes_stdev=40000 --ranks 8 dataset.num_files_train=960 train.epochs=1
said "abs(d['compute_only_s'] - 60 * 0.02) < 1e-6"
# a value that no run takes is told before the first run; the table names every key; a flag may be written as one
rm -rf early; rc=0
"$MILLRACE" -q run w.yaml --sweep reader.read_threads=1,many --out early >out 2>err || rc=$?
[ $rc = 2 ] && [ ! -e early ] && grep -q "'many'" err || fail "late refusal: $rc $(cat err)"
rc=0; "$MILLRACE" -q run w.yaml --sweep cache=asis,hot --out early >out 2>err || rc=$?
[ $rc = 2 ] && [ ! -e early ] && grep -q "'hot'" err || fail "late refusal of a flag: $rc $(cat err)"
"$MILLRACE" -q run w.yaml --no-ceiling --sweep reader.read_threads=1 --sweep --max-time=1h,2h --out early >out 2>err || fail "two keys: $(cat err)"
grep -q "^reader.read_threads max-time " out || fail "header: $(cat out)"
rc=0; "$MILLRACE" -q run w.yaml --find-max-accelerators --ranks 2 --out early >out 2>err || rc=$?
[ $rc = 2 ] && grep -q -- "--max-ranks" err || fail "--ranks in a search: $rc $(cat err)"

rc=0; "$MILLRACE" -q run imagenet-theta --virtual >out 2>err || rc=$? # its model shapes real storage
[ $rc = 2 ] && grep -q "needs a storage model" err && grep -q -- "--system" err || fail "virtual without a model: $rc $(cat err)"

echo "run, search: ok"
