#!/usr/bin/env bash
# millrace sim: the published tables over four seeds, the default mode's promises, JSON keys, sweeps, and bad scenario files.
# test-label: once (long under sanitizers: there only in make test-full)
set -eu
. "$(dirname "$0")/expect.sh"

# The published tables. The large scenario takes one seed, and four with MR_TEST_FULL=1.
seeds=1
[ -z "${MR_TEST_FULL:-}" ] || seeds=4
"$MILLRACE" sim thesis-1 --compat thesis --seeds 4 --json >one
"$MILLRACE" sim thesis-2 --compat thesis --seeds $seeds --json >two
python3 - <<'PY' || fail "published tables"
import json
names = "perfect nopfs lbann-dynamic deepio-opportunistic deepio-ordered lbann-preload locality-aware parallel-staging staging naive".split()
want = {"one": [7.30, 7.78, 7.71, 8.40, 8.41, 8.41, 8.41, 10.11, 10.24, 27.78],
        "two": [3825.66, 3836.12, 4051.12, 4432.90, 4433.27, 4433.27, 4433.27, 4972.65, 4982.27, 15130.54]}
for file, tol in (("one", .015), ("two", .003)):
    d = json.load(open(file))
    assert d["schema"] == "millrace.sim/1" and d["compat"] == "thesis"
    have = {p["name"]: p for p in d["policies"]}
    for name, w in zip(names, want[file]):
        t = have[name]["time_s"]
        assert abs(t / w - 1) <= tol, (file, name, t, w)
    assert not have["millrace"]["possible"] and "published" in have["millrace"]["why"]
PY

# The default mode: keys, order, bounds.
"$MILLRACE" sim thesis-1 --json >out
python3 - <<'PY' || fail "default mode"
import json
d = json.load(open("out"))
assert d["schema"] == "millrace.sim/1" and d["compat"] == "none" and d["method"] == "exact"
b = d["bounds"]
assert 0 < b["compute_only_s"] <= b["io_aware_s"]
times = [p["time_s"] for p in d["policies"] if p["comparable"]]
others = [p for p in d["policies"] if p["possible"] and not p["comparable"]]
assert times == sorted(times) and len(times) == 9 and len(others) == 2
# who sees only part of the data is not ranked among the others
assert d["policies"][9:] == others and all(p["distinct_samples_per_epoch_ratio"] < 0.99 for p in others), d["policies"]
by = {p["name"]: p for p in d["policies"]}
for p in d["policies"]:
    for key in "time_s time_min_s time_max_s stall_s stall_first_epoch_s stall_later_s preload_s pfs_bytes peer_bytes consumed_bytes imbalance".split():
        assert p[key] >= 0, (p["name"], key)
    assert len(p["class_bytes"]) == 2
    assert p["name"] == "perfect" or p["time_s"] >= b["io_aware_s"] * (1 - 1e-6) or p["changes_order"], p
assert by["millrace"]["time_s"] <= 1.01 * b["io_aware_s"]
assert by["millrace"]["pfs_bytes"] <= 1.01 * d["dataset_bytes"]
assert by["nopfs"]["pfs_bytes"] >= 3 * by["millrace"]["pfs_bytes"]
assert by["deepio-opportunistic"]["changes_order"] and by["deepio-opportunistic"]["distinct_samples_per_epoch_ratio"] < 1
assert by["staging"]["distinct_samples_per_epoch_ratio"] == 1
PY
"$MILLRACE" sim thesis-1 -p staging,millrace >out
grep -q '^millrace ' out && grep -q '^staging ' out && ! grep -q '^naive ' out || { cat out; fail "--policy"; }

# The plot of a page, alone.
plot_of() { python3 -c 'import re,sys; print(re.search(r"<div class=\"plot\">(<svg.*?</svg>)", open(sys.argv[1]).read(), re.S).group(1))' "$1"; }

# Overrides and sweeps.
"$MILLRACE" sim thesis-1 nodes=2 epochs=3 -p staging --json | python3 -c 'import json,sys; d=json.load(sys.stdin); assert d["nodes"]==2 and d["epochs"]==3' || fail "overrides"
"$MILLRACE" sim thesis-1 -p millrace --sweep nodes=1,2,4 --json | python3 -c '
import json,sys
d=json.load(sys.stdin)
assert d["schema"]=="millrace.sim_sweep/1" and d["key"]=="nodes" and [p["value"] for p in d["points"]]==["1","2","4"]
t=[p["result"]["policies"][0]["time_s"] for p in d["points"]]
assert t[0]>t[1]>t[2], t' || fail "sweep"

# Text: not comparable is said, a ratio below the bound is not printed but explained.
"$MILLRACE" sim thesis-1 >out
tail -5 out | grep -q '^deepio-opportunistic .* not comparable: sees [0-9]* % of the samples' || { cat out; fail "not comparable"; }
awk '/^(perfect|deepio-opportunistic)/ && $3 != "-" {exit 1}' out && grep -q "'perfect' needs no read" out || { cat out; fail "below the bound"; }
"$MILLRACE" sim thesis-1 -p staging >out
! grep -q 'is left out' out || { cat out; fail "an explanation of nothing"; }
# The mean of the sizes stays, however wide they are: 10,000 x 27,000 bytes.
for stdev in 13000 20000 100000 1000000; do
    "$MILLRACE" sim thesis-1 epochs=1 size_stdev=$stdev -p perfect --json | python3 -c '
import json,sys
d=json.load(sys.stdin)
assert abs(d["dataset_bytes"] / 270e6 - 1) < 0.02, d["dataset_bytes"]' || fail "mean size at a deviation of $stdev"
done
# A sweep checks all its points before the first runs; two make a grid; notes come once.
start=$(date +%s)
expect 2 "$MILLRACE" sim thesis-2 --sweep nodes=4,x
expect 2 "$MILLRACE" sim thesis-2 --sweep nodes=4,2000000
expect 2 "$MILLRACE" sim thesis-2 --sweep epochs=200 --sweep batch=100,3
[ $(($(date +%s) - start)) -lt 5 ] || fail "a bad sweep was found late"
"$MILLRACE" sim thesis-1 epochs=2 -p nopfs,millrace --sweep nodes=2,4 --sweep class1=50MB,300MB --json | python3 -c '
import json,sys
d=json.load(sys.stdin)
assert d["keys"] == ["nodes", "class1"] and "key" not in d
assert [tuple(p["values"].values()) for p in d["points"]] == [("2","50MB"),("2","300MB"),("4","50MB"),("4","300MB")]
assert [p["result"]["nodes"] for p in d["points"]] == [2,2,4,4]' || fail "grid"
"$MILLRACE" sim thesis-1 epochs=2 -p nopfs,millrace --sweep nodes=2,4 --sweep class1=50MB,300MB >out
[ "$(awk 'NR > 2 {print $1 "-" $2}' out | tr '\n' ,)" = "2-50MB,2-300MB,4-50MB,4-300MB," ] || { cat out; fail "grid as text"; }
expect 2 "$MILLRACE" sim thesis-1 --sweep nodes=2 --sweep nodes=4
"$MILLRACE" sim thesis-1 -p naive --sweep nodes=2 --sweep epochs=1 --sweep class1=50MB --sweep class2=1GB --sweep seed=1,2 --csv >out || fail "five keys"
[ "$(head -n 2 out | tail -n 1 | cut -d, -f1-6)" = "2,1,50MB,1GB,1,naive" ] && [ "$(wc -l <out)" = 3 ] || { cat out; fail "five keys"; }
"$MILLRACE" sim workload=unet3d_h100 system=lassen -p staging --sweep nodes=2,4 --sweep reader.batch_size=2,4 >out 2>err
[ "$(grep -c 'sample_shuffle shuffles' err)" = 1 ] || { cat err; fail "notes of a sweep"; }
# README's sweep takes seconds and shows a difference.
readme=$(sed -n 's/^millrace \(sim .*--sweep [^ ]*\).*/\1/p' "$MR_SOURCE_DIR/README.md")
# shellcheck disable=SC2086
timeout 20 "$MILLRACE" -q $readme --json | python3 -c '
import json,sys
for p in json.load(sys.stdin)["points"]:
    t={q["name"]: q["time_s"] for q in p["result"]["policies"]}
    assert t["staging"] > 2 * t["millrace"], t' || fail "README: $readme"
# CSV: a line per policy and point; it agrees with JSON.
"$MILLRACE" sim thesis-1 epochs=2 --seeds 2 -p naive,millrace --sweep nodes=2,4 --csv >a.csv
"$MILLRACE" sim thesis-1 epochs=2 --seeds 2 -p naive,millrace --sweep nodes=2,4 --json >a.json
python3 - <<'PY' || fail "CSV"
import csv, json
rows = list(csv.DictReader(open("a.csv")))
d = json.load(open("a.json"))
want = [(pt["value"], p) for pt in d["points"] for p in pt["result"]["policies"]]
assert len(rows) == len(want) == 4
for r, (value, p) in zip(rows, want):
    assert r["nodes"] == value and r["policy"] == p["name"] and r["comparable"] == "1"
    for key in "time_s time_min_s time_max_s stall_s pfs_bytes".split():
        assert abs(float(r[key]) - p[key]) <= 1e-6 * p[key] + 1, (key, r, p)
PY
expect 2 "$MILLRACE" sim thesis-1 --csv --json
# Several seeds: least and most in the table, bars in the plot. Lines on each other have different widths.
"$MILLRACE" sim thesis-1 epochs=2 -p nopfs,millrace --seeds 3 | grep -q 'LEAST s .*MOST s' || fail "spread in the table"
"$MILLRACE" sim thesis-1 -p deepio-ordered,lbann-preload,staging --seeds 3 --sweep nodes=2,4 --html plot.html >out
plot_of plot.html >plot.svg
python3 - <<'PY' || fail "plot of seeds"
import xml.dom.minidom
paths = xml.dom.minidom.parse("plot.svg").getElementsByTagName("path")
assert sum(p.getAttribute("class") == "error" for p in paths) >= 4
widths = {}
for p in paths:
    if p.getAttribute("stroke-width"):
        widths.setdefault(p.getAttribute("d"), []).append(int(p.getAttribute("stroke-width")))
assert any(len(w) == 2 and w[0] > w[1] for w in widths.values()), widths
PY
# No label lies on another, also where points lie close together; every line has its name.
"$MILLRACE" -q sim thesis-1 epochs=1 --sweep nodes=1,2,4,5,10,20,25,50,100 --html close.html >out 2>err
plot_of close.html >close.svg
python3 - <<'PY' || fail "labels of the plot"
import itertools, xml.dom.minidom
texts = [t for t in xml.dom.minidom.parse("close.svg").getElementsByTagName("text") if not t.getAttribute("transform")]
boxes = []
for t in texts:
    size, name = float(t.getAttribute("font-size") or 12), t.firstChild.data
    x, y, width = float(t.getAttribute("x")), float(t.getAttribute("y")), 0.5 * size * len(name)
    x -= {"middle": width / 2, "end": width}.get(t.getAttribute("text-anchor"), 0)
    boxes.append((x, y - 0.8 * size, x + width, y, name))
for a, b in itertools.combinations(boxes, 2):
    assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (a, b)
assert {"millrace", "naive", "1", "100"} <= {b[4] for b in boxes}, boxes
PY
# Progress is for terminals.
"$MILLRACE" sim thesis-1 epochs=2 -p staging >out 2>err
! grep -q simulating err || fail "progress outside a terminal"
if command -v script >/dev/null; then
    script -qec "'$MILLRACE' sim thesis-1 -p staging" typescript >/dev/null
    grep -q 'simulating' typescript || { cat typescript; fail "no progress on a terminal"; }
fi

# What the order asks of a cache: the known figures of three placements, and the binomial distribution.
"$MILLRACE" sim thesis-1 samples=2400 batch=20 epochs=10 --access --json >out
python3 - <<'PY' || fail "access study"
import json
d = json.load(open("out"))
assert d["schema"] == "millrace.sim_access/1"
assert sum(f["samples"] for f in d["frequency"]) == 2400 and abs(sum(f["expected_samples"] for f in d["frequency"]) - 2400) < 5
assert sum(f["uses"] * f["samples"] for f in d["frequency"]) == 6000 == sum(r["accesses"] for r in d["reuse_distance"]) + d["first_accesses"]
third = {round(o["cache_ratio"], 2): o for o in d["outside_reads_per_access"]}[.33]
for place, want in ("random", .79), ("frequency", .61), ("next_use", .48):
    assert abs(third[place] / want - 1) < .05, third
PY
"$MILLRACE" sim thesis-1 --access | grep -q 'next use' || fail "access study as text"
expect 2 "$MILLRACE" sim imagenet-22k-lassen --access
expect 2 "$MILLRACE" sim thesis-1 --access --plan

# No storage at all is a size like any other: millrace is then staging.
"$MILLRACE" sim thesis-1 epochs=2 class1=0 class2=0 -p staging,millrace --json >out
python3 -c 'import json; p={q["name"]: q for q in json.load(open("out"))["policies"]}; assert p["millrace"]["peer_bytes"] == 0 and p["millrace"]["pfs_bytes"] == p["staging"]["pfs_bytes"], p' || fail "class1=0"

# A plot of a sweep is well-formed and has one line per policy and the bound.
"$MILLRACE" sim thesis-1 -p staging,millrace --sweep class1=10MB,50MB,300MB --html plot.html >out
plot_of plot.html >plot.svg
python3 - <<'PY' || fail "plot"
import xml.dom.minidom
d = xml.dom.minidom.parse("plot.svg")
assert d.documentElement.tagName == "svg"
texts = [t.firstChild.data for t in d.getElementsByTagName("text")]
for want in ("staging", "millrace", "lower bound", "300MB", "class1 (logarithmic)"):
    assert want in texts, (want, texts)
assert len(d.getElementsByTagName("circle")) == 6
PY

# Storage: the answer keeps the stall within the limit, a little less does not.
"$MILLRACE" sim thesis-1 pfs_factor=1.2 --plan --max-stall 0.15 --json >out
python3 - <<'PY' || fail "plan"
import json
d = json.load(open("out"))
assert d["schema"] == "millrace.sim_plan/1" and d["policy"] == "millrace" and d["reachable"], d
a = d["answers"][0]
assert a["class"] == 1 and 0 < a["capacity_bytes"] < 271e6
good = {c["capacity_bytes"]: c["stall_ratio"] for c in a["curve"]}
assert good[a["capacity_bytes"]] <= 0.15
assert max(c for c, stall in good.items() if stall > 0.15) < a["capacity_bytes"]
PY
"$MILLRACE" sim thesis-1 --plan | grep -q 'not reachable' || fail "plan that is not reachable"

# Workloads on machines; the shipped ones all load.
mkdir -p lustre # a folder that has the name of a system
"$MILLRACE" sim --list >out
for name in thesis-2 imagenet-22k-lassen hdd ssd optane lustre theta-lustre cori-lustre lassen piz-daint nopfs-paper; do
    grep -q "^  $name " out || { cat out; fail "$name is not listed"; }
done
"$MILLRACE" sim --list --json | python3 -c 'import json,sys; d=json.load(sys.stdin); assert all(s["source"] for s in d["systems"]) and len(d["scenarios"]) >= 9' || fail "list --json"
"$MILLRACE" sim workload=unet3d_h100 reader.batch_size=4 system=cori-lustre nodes=2 epochs=2 -p staging,millrace --json 2>err >out || { cat err; fail "workload"; }
python3 - <<'PY' || fail "workload"
import json
d = json.load(open("out"))
assert (d["scenario"], d["system"], d["nodes"], d["batch"], d["epochs"], d["samples"]) == ("unet3d_h100", "cori-lustre", 2, 8, 2, 168), d
# 4 samples take 0.323 s of compute on each of 2 nodes, so that 21 full steps take at least 2 x 21 x 0.323 s.
assert 2 * 21 * 0.323 * 0.9 < d["bounds"]["compute_only_s"] < 2 * 21 * 0.323 * 1.8, d["bounds"]
PY
# One scenario, whoever asks: staging takes as long in a study as --virtual predicts, also with preprocessing, and in file order.
for words in "" "reader.preprocess_time=0.2" "reader.order=sequential reader.read_threads=2 reader.prefetch_size=3" "reader.drop_last=false dataset.num_files_train=51"; do
    # shellcheck disable=SC2086
    "$MILLRACE" -q run unet3d_h100 $words train.epochs=2 --virtual --system cori-lustre --ranks 2 --json >v.json 2>err || { cat err; fail "virtual"; }
    # shellcheck disable=SC2086
    "$MILLRACE" -q sim workload=unet3d_h100 $words train.epochs=2 system=cori-lustre nodes=2 -p staging --json >s.json 2>err || { cat err; fail "study"; }
    python3 -c 'import json; v, s = json.load(open("v.json")), json.load(open("s.json")); t = s["policies"][0]["time_s"]
assert abs(t / v["training_s"] - 1) < 1e-9 and abs(s["bounds"]["compute_only_s"] / v["compute_only_s"] - 1) < 1e-9, (t, v)' || fail "study and prediction differ: $words"
done
expect 2 "$MILLRACE" sim workload=unet3d_h100
grep -q 'system=NAME' err || fail "no hint at the system"
expect 2 "$MILLRACE" sim thesis-1 workload=unet3d_h100
expect 2 "$MILLRACE" sim workload=llama3_8b system=lassen
expect 2 "$MILLRACE" sim thesis-1 reader.batch_size=3
expect 2 "$MILLRACE" sim thesis-1 --plan --sweep nodes=1,2
expect 5 "$MILLRACE" sim thesis-1 -p staging --sweep nodes=1,2 --html nowhere/x.html

# What-if on a finished run: the scenario is the run's, keys can be changed.
"$MILLRACE" run unet3d_h100 dataset.num_files_train=14 dataset.record_length_bytes=200000 dataset.record_length_bytes_stdev=0 \
    train.epochs=2 train.computation_time=0.02 --data data --generate --out res >out 2>&1 || { cat out; fail "the run"; }
"$MILLRACE" sim --from res -p staging --json >out
python3 -c 'import json; d=json.load(open("out")); assert (d["scenario"], d["nodes"], d["samples"], d["epochs"], d["batch"]) == ("unet3d_h100", 1, 14, 2, 7), d
assert abs(d["bounds"]["compute_only_s"] / 0.08 - 1) < 0.1, d["bounds"]' || fail "--from"
expect 0 "$MILLRACE" sim --from res/summary.json nodes=2 -p millrace
# Nothing changed: the run's own policy, predicted and measured, by epoch and source; a throttled store is taken as it was set.
"$MILLRACE" sim --from res -p staging >out
[ "$(grep -c '^[12] .* / ' out)" = 2 ] && grep -q '^all .* / ' out || fail "--from: no comparison: $(cat out)"
"$MILLRACE" sim --from res -p staging nodes=2 >out
! grep -q '^all' out || fail "a changed scenario is compared with the run"
"$MILLRACE" -q run unet3d_h100 dataset.num_files_train=14 dataset.record_length_bytes=200000 dataset.record_length_bytes_stdev=0 reader.read_threads=0 \
    train.epochs=2 train.computation_time=0 --data data --out slow --store 'throttle(open_latency=3ms,bandwidth=20MB):posix' >/dev/null 2>&1 || [ $? = 3 ] || fail "the slow run"
"$MILLRACE" sim --from slow -p naive,staging --json >out
python3 - <<'P' || fail "--from: the run itself"
import json
d, run = json.load(open("out"))["against"], json.load(open("slow/summary.json"))["millrace"]
assert d["policy"] == "naive" and len(d["epochs"]) == 2, d
assert d["measured"]["time_s"] == run["duration_s"] and d["measured"]["source_bytes"] == run["read_bytes"]
# 28 opens of 3 ms and 28 reads of 200 kB and a header at 20 MB/s, one after the other
want = 28 * (0.003 + run["read_bytes"] / 28 / 20e6)
assert abs(d["predicted"]["time_s"] / want - 1) < 0.01, (d, want)
assert d["measured"]["time_s"] >= 0.99 * want, (d, want)
assert abs(sum(e["predicted"]["source_bytes"] for e in d["epochs"]) / d["predicted"]["source_bytes"] - 1) < 1e-6
assert abs(sum(e["predicted"]["time_s"] for e in d["epochs"]) / d["predicted"]["time_s"] - 1) < 1e-6
P
expect 5 "$MILLRACE" sim --from nowhere
echo '{"schema": "other/1"}' >other.json
expect 4 "$MILLRACE" sim --from other.json
echo '{"schema": "millrace.run/1"' >other.json
expect 4 "$MILLRACE" sim --from other.json
echo '{"schema": "millrace.run/1", "millrace": {"per_rank": 5, "samples": "x"}, "config": []}' >other.json
expect 6 "$MILLRACE" sim --from other.json
expect 2 "$MILLRACE" sim thesis-1 --from res

# One stream's limit: the study's hard disk gives one reader 1/2.3 of what eight get, its Lustre 1/7.8.
for want in hdd:2.3 lustre:7.8; do
    "$MILLRACE" sim thesis-1 system=${want%:*} nodes=1 epochs=2 compute=1TB -p naive,staging --json >out
    python3 -c 'import json,sys; t={p["name"]: p["time_s"] for p in json.load(open("out"))["policies"]}; r=t["naive"]/t["staging"]; assert abs(r/float(sys.argv[1])-1)<0.03, r' ${want#*:} || fail "threads on ${want%:*}"
done

# Bad input: what, where, what to do.
bad() { # want text, hint or "", file content (printf)
    printf "$3" >bad.yaml
    expect 2 "$MILLRACE" sim bad.yaml
    grep -q -- "$1" err || { cat err; fail "message of: $3"; }
    [ -z "$2" ] || grep -q -- "$2" err || { cat err; fail "hint or place of: $3"; }
}
ok='system: thesis\nnodes: 4\ndataset: {samples: 1000, size: 1MB}\nbatch: 100\nepochs: 2\n'
printf "$ok" >good.yaml
expect 0 "$MILLRACE" sim good.yaml -p staging
bad "unknown key 'batsh'" "did you mean 'batch'" "${ok/batch:/batsh:}"
bad "unknown key 'sizes'" "bad.yaml:3" "${ok/size:/sizes:}"
bad "nodes" "bad.yaml:2" "${ok/nodes: 4/nodes: four}"
bad "nodes" "bad.yaml:2" "${ok/nodes: 4/nodes: 0}"
bad "nodes" "bad.yaml:2" "${ok/nodes: 4/nodes: -4}"
bad "size" "bad.yaml:3" "${ok/1MB/1XB}"
bad "dataset" "" "${ok/dataset: \{samples: 1000, size: 1MB\}/dataset: 5}"
bad "no 'system'" "" "${ok/system: thesis\\n/}"
bad "unknown system 'thesiss'" "did you mean 'thesis'" "${ok/thesis/thesiss}"
bad "unknown system 'elsewhere'" "sim --list" "${ok/thesis/elsewhere}"
bad "batch 100 is smaller than 101 nodes" "" "${ok/nodes: 4/nodes: 101}"
# A batch that does not divide is rounded down, and that is said.
printf "${ok/nodes: 4/nodes: 3}" >odd.yaml
expect 0 "$MILLRACE" sim odd.yaml -p staging --json
python3 -c 'import json; d=json.load(open("out")); assert d["batch"] == 99, d' && grep -q 'steps of 99' err || { cat err; fail "odd batch"; }
bad "do not fill one" "" "${ok/1000/10}"
bad "either 'batch'" "" "${ok}local_batch: 5\n"
bad "drop_last" "" "${ok}drop_last: false\n"
huge=${ok/samples: 1000/samples: 4294967294}
bad "GB of memory" "" "$huge"
bad "accesses" "" "${huge/epochs: 2/epochs: 65535}"
bad "no class 2" "" "${ok/system: thesis/system: piz-daint}class2: 1GB\n"
bad "order" "" "${ok}order: shard\n"
bad "must ascend" "bad.yaml:1" "${ok/system: thesis/system: \{compute: 1MB, pfs: \{bandwidth: \{4: 1MB, 2: 3MB\}\}, classes: [\{capacity: 1GB, read: 1GB\}]\}}"
bad "rate" "bad.yaml:1" "${ok/system: thesis/system: \{compute: 1MB, pfs: \{bandwidth: \{4: 0\}\}, classes: [\{capacity: 1GB, read: 1GB\}]\}}"
bad "threads" "" "${ok/system: thesis/system: \{compute: 1MB, pfs: \{bandwidth: 1MB\}, classes: [\{capacity: 1GB, threads: 60, read: 1GB\}, \{capacity: 1GB, threads: 60, read: 1GB\}]\}}"
bad "not valid YAML" "bad.yaml:" 'system: {a: [1, 2\n'
: >bad.yaml
expect 2 "$MILLRACE" sim bad.yaml
expect 2 "$MILLRACE" sim
expect 2 "$MILLRACE" sim no-such-scenario
expect 2 "$MILLRACE" sim thesis-1 --policy ''
expect 2 "$MILLRACE" sim thesis-1 --policy nothing
grep -q "unknown policy 'nothing'" err || fail "policy message"
expect 2 "$MILLRACE" sim thesis-1 --sweep nodes
expect 2 "$MILLRACE" sim thesis-1 --sweep nodes=1,x
expect 2 "$MILLRACE" sim thesis-1 nodez=4
grep -q "nodes" err || fail "nearest override"
echo passed
