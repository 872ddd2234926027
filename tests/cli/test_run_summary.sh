#!/usr/bin/env bash
# The summary equals what an independent program computes from the series of steps; DLIO's figures equal DLIO's formulas,
# written here a second time from its documentation, on the same series.
set -eu
fail() { echo "FAIL: $*" >&2; exit 1; }
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"
cat >w.yaml <<'Y'
workflow: {train: true, evaluation: true, checkpoint: true}
model: {model_size_bytes: 200000}
dataset: {format: npz, num_files_train: 60, num_files_eval: 12, record_length_bytes: 30000, data_folder: d}
reader: {batch_size: 3, batch_size_eval: 2, read_threads: 2, sample_shuffle: seed}
train: {epochs: 3, computation_time: {type: normal, mean: 0.004, stdev: 0.001}}
evaluation: {eval_time: 0.002}
checkpoint: {checkpoint_folder: c, steps_between_checkpoints: 4}
Y
"$MILLRACE" -q run w.yaml --generate --ranks 3 --out o --store "throttle(bandwidth=30MB):posix" >out 2>err || fail "$(cat err)"
cat >check.py <<'P'
import csv, json, math
s = json.load(open("o/summary.json"))
m, d = s["millrace"], s["metric"]
R = 3
series = []
for r in range(R):
    rows = [{k: (v if k == "phase" else int(v)) for k, v in x.items()} for x in csv.DictReader(open(f"o/rank-{r}.steps.csv"))]
    series.append(rows)
def near(a, b, what):
    assert abs(a - b) <= 1e-9 * max(1, abs(a), abs(b)), (what, a, b)
train = [[x for x in rows if x["phase"] == "train"] for rows in series]
wall = lambda x: x["end_ns"] - x["start_ns"]
mean = lambda v: sum(v) / len(v)
std = lambda v: math.sqrt(mean([(x - mean(v)) ** 2 for x in v]))
def quantile(v, q):
    v = sorted(v); at = q * (len(v) - 1); lo = int(at)
    return v[lo] + (at - lo) * (v[lo + 1] - v[lo]) if lo + 1 < len(v) else v[-1]
# ours
near(m["au"], mean([sum(x["compute_ns"] for x in t[1:]) / sum(wall(x) for x in t[1:]) for t in train]), "au")
assert m["au_ci95_low"] <= m["au"] <= m["au_ci95_high"]
near(m["samples"], sum(x["samples"] for t in train for x in t), "samples")
everything = [x for rows in series for x in rows]
near(m["duration_s"], (max(x["end_ns"] + x["checkpoint_ns"] for x in everything) - min(x["start_ns"] for x in everything)) / 1e9, "duration")
flat = [x for t in train for x in t]
window = max(x["end_ns"] + x["checkpoint_ns"] for x in flat) - min(x["start_ns"] for x in flat)
window -= sum(wall(x) + x["checkpoint_ns"] for x in series[0] if x["phase"] == "eval" and x["start_ns"] < max(y["start_ns"] for y in flat))
near(m["samples_per_s"], m["samples"] / (window / 1e9), "samples/s")
near(m["read_bytes_per_s"], sum(x["read_bytes"] for x in flat) / (window / 1e9), "bytes/s")
loads = [x["load_ns"] / 1e9 for x in flat]
for q, k in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (1, "max")):
    near(m["stall_per_step_s"][k], quantile(loads, q), k)
near(m["stalled_steps_share"], mean([x["load_ns"] > 0.05 * wall(x) for x in flat]), "stalled")
split = m["time_split"]
near(sum(split.values()), 1, "split adds up")
for key, col in (("compute", "compute_ns"), ("data_stall", "load_ns"), ("barrier", "barrier_ns"), ("checkpoint", "checkpoint_ns")):
    near(split[key], mean([sum(x[col] for x in rows) / (rows[-1]["end_ns"] + rows[-1]["checkpoint_ns"] - rows[0]["start_ns"]) for rows in series]), key)
near(m["ceiling_speedup"], 1 / (1 - split["data_stall"] - split["checkpoint"]), "ceiling")
demand = sum(x["read_bytes"] for x in flat) / len(flat) * R / mean([x["compute_ns"] / 1e9 for x in flat])
near(m["demand_bytes_per_s"], demand, "demand")
# DLIO
steps, ev_steps, batch, batch_eval, rec = 60 // 3 // R, 12 // 2 // R, 3, 2, 30000
first = 1
proc = lambda x: (x["load_ns"] + x["copy_ns"] + x["compute_wall_ns"]) / 1e9
comp = lambda x: x["compute_wall_ns"] / 1e9
def block(b, n):
    end = n - 1
    total = (b[-1]["end_ns"] - b[0]["start_ns"]) / 1e9 - sum(map(proc, b[:first])) - sum(map(proc, b[end + 1:]))
    c = sum(map(comp, b[first:end + 1]))
    return (100 * c / total if c else 0), total
au, rate = [], []
for e in range(3):
    per_rank = []
    for t in train:
        parts = []
        mine = [x for x in t if x["epoch"] == e]
        for k in sorted({x["block"] for x in mine}):
            b = [x for x in mine if x["block"] == k]
            a, total = block(b, steps)
            parts.append((len(b), a, (len(b) - 2) / total * batch))
        n = sum(p[0] for p in parts)
        per_rank.append((sum(p[0] * p[1] for p in parts) / n, sum(p[0] * p[2] for p in parts) / n))
    au.append(mean([p[0] for p in per_rank]))
    rate.append(sum(p[1] for p in per_rank))
for a, b in zip(au, d["train_au_percentage"]): near(a, b, "train_au_percentage")
for a, b in zip(rate, d["train_throughput_samples_per_second"]): near(a, b, "train_throughput")
near(mean(au), d["train_au_mean_percentage"], "mean"); near(std(au), d["train_au_stdev_percentage"], "stdev")
near(mean(rate) * rec / 1024 / 1024, d["train_io_mean_MB_per_second"], "io")
near(std(rate) * rec / 1024 / 1024, d["train_io_stdev_MB_per_second"], "io stdev")
assert d["train_au_meet_expectation"] == ("success" if mean(au) >= 90 else "fail")
ev = []
for e in range(3):
    per = []
    for rows in series:
        b = [x for x in rows if x["phase"] == "eval" and x["epoch"] == e]
        per.append((block(b, ev_steps)[0], len(b) / ((b[-1]["end_ns"] - b[0]["start_ns"]) / 1e9) * batch_eval))
    ev.append((mean([p[0] for p in per]), sum(p[1] for p in per)))
near(mean([x[0] for x in ev]), d["eval_au_mean_percentage"], "eval au")
near(mean([x[1] for x in ev]), d["eval_throughput_mean_samples_per_second"], "eval rate")
ck = [x for x in csv.DictReader(open("o/checkpoints.csv"))]
mine = [x for x in ck if x["rank"] == "0"]
assert len(mine) == m["checkpoint"]["saves"] == 4
near(mean([int(x["duration_ns"]) / 1e9 for x in mine]), d["save_checkpoint_duration_mean_seconds"], "save")
slow = [max(int(x["duration_ns"]) for x in ck if x["step"] == y["step"]) / 1e9 for y in mine]
near(m["checkpoint"]["save_s"]["max"], max(slow), "slowest save")
near(m["checkpoint"]["save_bytes_per_s"], 4 * 200000 / sum(slow), "save rate")
P
python3 check.py || fail "the summary is not what the series say"
echo "run, summary: ok"
