#!/usr/bin/env bash
# The events of a run: `run` leaves a trace, `report` computes every figure of summary.json again from it, and they are
# equal; --trace has every call; a trace that was cut or a summary that was changed is noticed.
set -eu
export MILLRACE_RUN_OVERWRITE=true # runs share a folder on purpose
. "$(dirname "$0")/expect.sh"
cat >w.yaml <<'Y'
workflow: {train: true, evaluation: true, checkpoint: true}
model: {model_size_bytes: 300000}
dataset: {format: indexed_binary, num_files_train: 6, num_samples_per_file: 8, num_files_eval: 3, record_length_bytes: 4096, data_folder: d}
reader: {batch_size: 4, batch_size_eval: 2, read_threads: 2, sample_shuffle: seed}
train: {epochs: 3, computation_time: 0.002}
evaluation: {eval_time: 0.001}
checkpoint: {checkpoint_folder: c, steps_between_checkpoints: 3, fsync: true}
Y
"$MILLRACE" -q gen d --workload w.yaml >/dev/null 2>&1
equal() { # folder: the trace confirms every figure
    "$MILLRACE" report "$1" >out 2>err || fail "report $1: $(cat err)"
    [ ! -s err ] || fail "$1: $(cat err)"
    "$MILLRACE" report --json "$1" >r.json 2>err && python3 - "$1" <<'P' || fail "report --json $1: $(cat err)"
import json, sys
live, report = json.load(open(sys.argv[1] + "/summary.json")), json.load(open("r.json"))
again = report["run"]
au = report["facts"]["au"], live["millrace"]["au"]
assert au[0] == au[1] or abs(au[0] - au[1]) < 1e-12, au  # one has 15 digits, the other 17
assert live["metric"] == again["metric"], "metric"
for k, v in live["millrace"].items(): assert again["millrace"][k] == v, (k, v, again["millrace"][k])
assert live["millrace"]["steps"] > 0 or live["millrace"]["checkpoint"]["saves"] > 0
P
}
n=0
while read -r words; do
    n=$((n + 1))
    rm -rf c bb
    # shellcheck disable=SC2086
    "$MILLRACE" -q run w.yaml --out "o$n" $words >out 2>err || fail "run $words: $(cat err)"
    equal "o$n"
done <<'L'
--no-ceiling
--ranks 3 --no-ceiling output.metric.exclude_start_steps=4 output.metric.exclude_end_steps=2
--ranks 2 --no-ceiling --burst-buffer bb
--ranks 2 --no-ceiling --io queue --verify --copy-to-device
--ranks 3 --no-ceiling pattern.unit=record workflow.evaluation=false reader.file_access=collective
--no-ceiling reader.read_type=memory workflow.evaluation=false
--ranks 2 --no-ceiling workflow.train=false workflow.evaluation=false checkpoint.num_checkpoints_write=2 checkpoint.num_checkpoints_read=2
L
# one rank reads for three: each of them waits once per step, and the reader fetches the samples of all
rm -rf c
"$MILLRACE" -q run w.yaml --ranks 3 --no-ceiling --out g --trace g.mrt workflow.evaluation=false reader.file_access=collective >out 2>err ||
    fail "collective --trace: $(cat err)"
"$MILLRACE" export -q -f csv -o g.csv g.mrt && python3 - <<'P' || fail "events of a collective run"
import csv
from collections import Counter
count = Counter((r["name"], r["category"]) for r in csv.DictReader(open("g.csv")))
steps, samples = count["step", "train"], count["row ready", "loader"]
assert steps > 0 and count["wait", "loader"] == count["batch ready", "loader"] == steps, count
assert samples == count["fetch store", "loader"] >= steps * 4, count
P
# every call of the storage, and what the loader did for each sample, beside the steps
rm -rf c
"$MILLRACE" -q run w.yaml --ranks 2 --no-ceiling --out t --trace t.mrt >out 2>err || fail "--trace: $(cat err)"
[ t/trace.mrt -ef t.mrt ] && [ -z "$(ls t.mrt.rank-* 2>/dev/null)" ] || fail "--trace leaves parts: $(ls t t.mrt*)"
"$MILLRACE" export -q -f csv -o t.csv t.mrt && python3 - <<'P' || fail "events of --trace"
import csv, json
rows = list(csv.DictReader(open("t.csv")))
count = lambda name, category=None: sum(r["name"] == name and category in (None, r["category"]) for r in rows)
samples = 2 * 3 * 24 + 2 * 3 * 12 # training and evaluation of two ranks, three epochs
for name in ("fetch store", "row ready"): assert count(name, "loader") == samples, (name, count(name))
assert count("step", "train") == 2 * 3 * (6 + 6), count("step")
assert count("compute") == count("step") and count("barrier") == count("step")
assert count("epoch") == 6 and count("evaluation") == 6 and count("run") == 2 and count("open", "train") == 2
assert count("save", "checkpoint") == 2 * 6 and count("rename", "checkpoint") == 6 and count("fsync", "checkpoint") > 0
reads = [r for r in rows if r["name"] == "pread" and r["file"].endswith(".indexed_binary") or r["name"] == "pread" and "img" in r["file"]]
assert sum(int(r["result"]) for r in reads) >= samples * 4096, len(reads)
fetch = [r for r in rows if r["name"] == "fetch store"]
args = [json.loads(r["args"]) for r in fetch]
assert all({"epoch", "batch", "sample"} <= set(a) for a in args)
per_epoch = {}
for r, a in zip(fetch, args): per_epoch.setdefault(a["epoch"], []).append(a["sample"])
assert {r["rank"] for r in fetch} == {"0", "1"}
train = [r for r in rows if r["category"] == "train" and r["name"] == "step"]
assert sorted(json.loads(r["args"])["step"] for r in train if "step" in json.loads(r["args"])) == sorted(list(range(18)) * 2)
P
# what goes on beside training: copies to an SSD, and checkpoints on their way from the burst buffer, piece by piece
rm -rf c bb
"$MILLRACE" -q run w.yaml --no-ceiling --out bg --trace bg.mrt --tiers "ram=1MiB,ssd=$PWD/cache:64MiB" --burst-buffer bb workflow.evaluation=false >out 2>err ||
    fail "--trace with tiers and a burst buffer: $(cat err)"
"$MILLRACE" export -q -f csv -o bg.csv bg.mrt && python3 - <<'P' || fail "events of background traffic"
import csv, json
rows = [(r["category"], r["name"], json.loads(r["args"])) for r in csv.DictReader(open("bg.csv")) if r["args"]]
copies = [a for c, n, a in rows if (c, n) == ("background", "copy to ssd")]
assert sorted(a["sample"] for a in copies) == list(range(48)), len(copies)
assert all(a["bytes"] >= 4096 and a["class"] == 2 for a in copies)
drains = [a for c, n, a in rows if (c, n) == ("checkpoint", "drain")]
pieces = [a for c, n, a in rows if (c, n) == ("checkpoint", "drain piece")]
want = {a["step"]: a["bytes"] for a in drains}
got = {}
for a in pieces: got[a["step"]] = got.get(a["step"], 0) + a["bytes"]
assert len(want) == 12 and got == want, (want, got)
P
"$MILLRACE" report --all bg.mrt >out 2>err || fail "report --all: $(cat err)"
grep -q 'background.copy to ssd' out && grep -q 'checkpoint.drain piece' out || fail "report does not show background traffic: $(cat out)"
equal t # the folder leads to its trace, also from elsewhere, and after a run that had left one of its own
(mkdir -p away && cd away && "$MILLRACE" report ../t >out 2>err) || fail "report from elsewhere: $(cat away/err)"
cp -r o1 again && rm -rf c
"$MILLRACE" -q run w.yaml --no-ceiling --out again --overwrite --trace again.mrt >out 2>err || fail "again: $(cat err)"
equal again
# a run that could not begin leaves nothing
expect 2 "$MILLRACE" -q run w.yaml --no-ceiling --out none --store nosuch
[ ! -e none ] || fail "left behind: $(ls none)"
"$MILLRACE" report --tables t.mrt >out 2>err || fail "report of a trace: $(cat err)"
grep -q '^  ranks 2, steps 36, samples 144' out || fail "the run of a trace: $(head -5 out)"
# a summary that the trace does not confirm
cp -r o1 changed
python3 - <<'P'
import json
s = json.load(open("changed/summary.json")); s["millrace"]["samples_per_s"] *= 1.01; json.dump(s, open("changed/summary.json", "w"))
P
"$MILLRACE" report changed >out 2>err || fail "report of a changed summary: $(cat err)"
grep -q "the trace does not confirm the summary: millrace.samples_per_s" err || fail "a changed summary goes unnoticed: $(cat err)"
# what the run measures about its storage afterwards is in no trace of it: 24 files twice
"$MILLRACE" -q gen p --workload w.yaml dataset.num_files_train=24 dataset.num_samples_per_file=1 dataset.record_length_bytes=40000 dataset.num_files_eval=0 >/dev/null
"$MILLRACE" -q trace -o p.mrt -- "$MILLRACE" -q run w.yaml --data p --no-ceiling --out p.out --store "throttle(bandwidth=4MB):posix" workflow.evaluation=false \
    workflow.checkpoint=false dataset.num_files_train=24 dataset.num_samples_per_file=1 dataset.record_length_bytes=40000 dataset.num_files_eval=0 train.epochs=2 >out 2>err ||
    fail "run under trace: $(cat err)"
"$MILLRACE" report --json p.mrt >p.json 2>err && python3 - <<'P' || fail "bytes of the probe: $(cat err)"
import json
s, f = json.load(open("p.out/summary.json")), json.load(open("p.json"))["facts"]
assert s["storage_probe"]["read_bytes"] > 0
assert 0 <= f["data_read_bytes"] - s["millrace"]["read_bytes"] < 40000, (f["data_read_bytes"], s["millrace"]["read_bytes"], s["storage_probe"])
P
# a trace that cannot be written: asked for, an error before anything runs; else a warning
expect 5 "$MILLRACE" run w.yaml --no-ceiling --out x --trace /no/such/folder/t.mrt
grep -q "/no/such/folder/t.mrt" err || fail "$(cat err)"
echo "run, trace: ok"
