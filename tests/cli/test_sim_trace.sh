#!/usr/bin/env bash
# The trace of a simulated run is that of a run: what `millrace report` counts in it is what the simulator says: bytes, run time, compute, steps
# of every rank. One file per policy. Bytes by source, AU and epochs: tests/unit/test_sim_trace.c.
set -eu
. "$(dirname "$0")/expect.sh"
# Storage for a part of the set, so that samples move between nodes, too.
for grain in 1 5; do
    "$MILLRACE" sim thesis-1 epochs=3 class1=30MB class2=30MB --grain $grain --trace t.mrt --json >sim.json
    for file in t-*.mrt; do "$MILLRACE" report "$file" --json >"${file%.mrt}.json"; done
    python3 - <<'PY' || fail "report and simulator differ (grain $grain)"
import glob, json, os
sim = json.load(open("sim.json"))
possible = [p for p in sim["policies"] if p["possible"]]
assert {f"t-{p['name']}.mrt" for p in possible} == set(glob.glob("t-*.mrt")), glob.glob("t-*")
assert any(not p["possible"] for p in sim["policies"]) and len(possible) >= 9
near = lambda a, b, unit: abs(a - b) <= 1e-6 * abs(b) + unit
nodes = sim["nodes"]
for p in possible:
    d = json.load(open(f"t-{p['name']}.json"))
    assert d["lost_events"] == 0 and d["processes"] == nodes == d["nodes"], (p["name"], d["processes"])
    spans = {f["category"] + "." + f["name"]: f for f in d["functions"]}
    files = {f["path"]: f["read_bytes"] for f in d["top_files"]}
    ns = lambda name: spans.get(name, {"time_ns": 0})["time_ns"]
    count = lambda name: spans.get(name, {"count": 0})["count"]
    assert set(files) <= {"/pfs"} and near(files.get("/pfs", 0), p["pfs_bytes"], 1e5), (p["name"], files)
    assert near(d["total_time_ns"], 1e9 * p["time_s"], 1e3), (p["name"], d["total_time_ns"], p["time_s"])
    assert near(ns("compute.compute"), 1e9 * p["consumed_bytes"] / 100e6, 1e5), (p["name"], ns("compute.compute"))
    assert count("train.step") == nodes * 300 and count("train.epoch") == nodes * 3 and count("train.run") == nodes, spans.keys()
    assert near(ns("train.open"), nodes * 1e9 * p["preload_s"], 10 * nodes)
    assert near(ns("train.open") + ns("train.step"), nodes * 1e9 * p["time_s"], 1e3)
    assert near(ns("train.load"), ns("loader.wait"), 0)
    # Every node's time is compute, waiting for data, waiting for the others, and the start.
    each = ns("compute.compute") + ns("train.load") + ns("train.barrier") + ns("train.open")
    assert near(each, nodes * 1e9 * p["time_s"], 1e3), (p["name"], each)
    assert count("loader.row ready") == (0 if p["name"] == "perfect" else 30000), (p["name"], count("loader.row ready"))
    os.unlink(f"t-{p['name']}.mrt")
PY
done
# One policy: the name as given. Parts of it by step and by rank.
expect 0 "$MILLRACE" sim thesis-1 epochs=2 -p staging --trace one.mrt
[ -f one.mrt ] || fail "one policy, one file"
"$MILLRACE" report one.mrt --steps 0:99 --json >first
"$MILLRACE" report one.mrt --rank 2 --json >rank
python3 - <<'PY' || fail "filters"
import json
first, rank = json.load(open("first")), json.load(open("rank"))
steps = {f["category"] + "." + f["name"]: f["count"] for f in first["functions"]}
assert 4 * 95 <= steps["train.step"] <= 4 * 105, steps
assert rank["processes"] == 1 and rank["read_calls"] == 5000, (rank["processes"], rank["read_calls"])
PY
# Text and page state that the times are virtual; hosts of one clock need no alignment.
expect 0 "$MILLRACE" report one.mrt --html p.html
grep -q '^millrace report one.mrt .* simulated' out && ! grep -qi 'clocks' out || fail "text: $(cat out)"
grep -q ', simulated' p.html || fail "page"
expect 2 "$MILLRACE" sim thesis-1 --trace t.mrt --seeds 2
expect 2 "$MILLRACE" sim thesis-1 --trace t.mrt --compat thesis
grep -q 'exact method and one seed' err || fail "why"
expect 2 "$MILLRACE" sim thesis-1 --trace t.mrt --method expected
expect 2 "$MILLRACE" sim thesis-1 --trace t.mrt --plan
expect 2 "$MILLRACE" sim thesis-1 --trace t.mrt --sweep nodes=1,2
expect 5 "$MILLRACE" sim thesis-1 -p naive --trace nowhere/t.mrt
echo passed
