#!/usr/bin/env bash
# Simulated against real is a diff: `millrace sim W` and `millrace run W` on storage throttled to the rate of the model. Counts, bytes by source
# and the order are exact; no metric is unknown on the simulated side; times agree within a wide margin, as machines are busy (bench/check_sim_real
# judges them). `check` takes the simulated run like any other.
set -eu
. "$(dirname "$0")/expect.sh"
cat >w.yaml <<Y
workflow: {train: true}
dataset: {format: raw, num_files_train: 96, num_samples_per_file: 1, record_length_bytes: 500003, data_folder: $PWD/set}
reader: {batch_size: 8, read_threads: 4, file_shuffle: seed, sample_shuffle: seed}
train: {epochs: 2, computation_time: 0.04}
Y
cat >rig.yaml <<'Y'
name: rig
pfs: {bandwidth: 100MB}
classes:
  - {name: staging, capacity: 1GB, threads: 4, read: 1TB}
  - {name: ram, capacity: 1GB, threads: 4, read: 1TB}
Y
"$MILLRACE" -q gen set --workload w.yaml >/dev/null
both() { # name, ranks, policy, options of the run
    local name=$1 ranks=$2 policy=$3
    shift 3
    "$MILLRACE" -q run w.yaml --ranks $ranks --policy $policy --store "throttle(bandwidth=100MB,group=$name$$,group_folder=$PWD):posix" --no-ceiling \
        --no-probe --out "run-$name" --trace "R-$name.mrt" "$@" >log 2>&1 || [ $? = 3 ] || { cat log; fail "run $name"; }
    "$MILLRACE" -q sim workload=w.yaml system=rig.yaml nodes=$ranks -p $policy --trace "S-$name.mrt" >log || { cat log; fail "sim $name"; }
    expect 0 "$MILLRACE" compare "S-$name.mrt" "R-$name.mrt"
    mv out "$name.txt"
    "$MILLRACE" compare "S-$name.mrt" "R-$name.mrt" --json >"$name.json"
}
both plain 2 staging
both tiers 1 millrace --tiers ram=1GB
python3 - <<'PY' || { cat plain.txt tiers.txt; fail "simulated and real differ"; }
import json
size, samples, epochs = 500003, 96, 2
set_bytes = size * samples
bytes_want = {  # from the source, from memory
    "plain": (epochs * set_bytes, 0),
    "tiers": (set_bytes, set_bytes),  # every byte once; then it is in memory
}
for name, (read, ram) in bytes_want.items():
    text, d = open(name + ".txt").read(), json.load(open(name + ".json"))
    steps = samples * epochs // 8
    assert text.startswith(f"same work: yes ({steps} steps, {samples * epochs} samples, ") and "in the same order)" in text.split("\n")[0], text
    sim, real = (s["runs"][0] for s in d["sides"])
    assert sim["simulated"] and not real["simulated"]
    a, b = sim["metrics"], real["metrics"]
    for key in b:
        assert b[key] is None or a[key] is not None, (name, key, "is unknown to the simulator")
    for run in (a, b):
        assert run["read_bytes"] == read and run["ram_bytes"] == ram and run["ssd_bytes"] == 0 and run["peer_bytes"] == 0, (name, run)
    for row in ("wall", "step, mean", "data stall", "AU", "samples/s", "read", "read rate"):
        line = next((l for l in text.split("\n") if l.startswith(" " + row + "  ")), None)
        assert line and "unknown" not in line, (name, row, line)
    assert "predicted by simulation" in text and ", error" in text, text
    # A busy machine makes the run slower, never faster.
    assert -0.1 < b["wall_s"] / a["wall_s"] - 1 < 1, (name, a["wall_s"], b["wall_s"])
    assert -1 < b["au"] - a["au"] < 0.1 and a["au"] > 0.4, (name, a["au"], b["au"])
PY
grep -q '^ from RAM .* same$' tiers.txt || fail "memory: $(cat tiers.txt)"
! grep -q '^ from' plain.txt || fail "sources without tiers: $(cat plain.txt)"
# Two simulated runs: what comes from a tier in one of them only
expect 0 "$MILLRACE" compare S-plain.mrt S-tiers.mrt
grep -q '^ from RAM  *0.000 .* from 0$' out || fail "from 0: $(cat out)"
# check: a budget for the simulated run, kept and missed
expect 0 "$MILLRACE" check S-plain.mrt --limit 'au > 40%' --limit 'stall_pct < 60' --limit 'wall_s < 5'
expect 3 "$MILLRACE" check S-plain.mrt --limit 'au > 99%'
echo passed
