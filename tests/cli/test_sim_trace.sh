#!/usr/bin/env bash
# The trace of a simulated run: what `millrace report` counts in it is what the simulator says: bytes by source, stall, run time, compute,
# steps. One file per policy.
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
for p in possible:
    d = json.load(open(f"t-{p['name']}.json"))
    assert d["lost_events"] == 0 and d["processes"] == sim["nodes"] == d["nodes"], (p["name"], d["processes"])
    files = {f["path"]: f for f in d["top_files"]}
    spans = {f["category"] + "." + f["name"]: f for f in d["functions"]}
    read = lambda path: files.get(path, {"read_bytes": 0})["read_bytes"]
    ns = lambda name: spans.get(name, {"time_ns": 0})["time_ns"]
    want = {"/pfs": p["pfs_bytes"], "/peer": p["peer_bytes"], "/class1-ram": p["class_bytes"][0], "/class2-ssd": p["class_bytes"][1]}
    assert set(files) <= set(want), files
    for path, n in want.items():
        assert near(read(path), n, 1e5 * (n > 0)), (p["name"], path, read(path), n)
    assert near(d["total_time_ns"], 1e9 * p["time_s"], 1e3), (p["name"], d["total_time_ns"], p["time_s"])
    assert near(ns("compute.train"), 1e9 * p["consumed_bytes"] / 100e6, 1e5), (p["name"], ns("compute.train"))
    assert spans["job.step"]["count"] == 300 and spans["job.epoch"]["count"] == 3
    assert near(ns("job.preload"), 1e9 * p["preload_s"], 10)
    assert near(ns("job.step") + ns("job.preload"), 1e9 * p["time_s"], 1e3)
    # Every node's time is compute, waiting for data, waiting for the others, and the start.
    each = ns("compute.train") + ns("loader.wait") + ns("train.barrier") + sim["nodes"] * ns("job.preload")
    assert near(each, sim["nodes"] * 1e9 * p["time_s"], 1e5), (p["name"], each)
    if not p["changes_order"]:
        assert near(ns("job.stall") + ns("job.preload"), 1e9 * p["stall_s"], 1e5), (p["name"], ns("job.stall"), p["stall_s"])
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
assert 95 <= steps["job.step"] <= 105, steps
assert rank["processes"] == 1 and rank["read_calls"] == 5000, (rank["processes"], rank["read_calls"])
PY
expect 2 "$MILLRACE" sim thesis-1 --trace t.mrt --seeds 2
expect 2 "$MILLRACE" sim thesis-1 --trace t.mrt --compat thesis
grep -q 'exact method and one seed' err || fail "why"
expect 2 "$MILLRACE" sim thesis-1 --trace t.mrt --method expected
expect 2 "$MILLRACE" sim thesis-1 --trace t.mrt --plan
expect 2 "$MILLRACE" sim thesis-1 --trace t.mrt --sweep nodes=1,2
expect 5 "$MILLRACE" sim thesis-1 -p naive --trace nowhere/t.mrt
echo passed
