"""Every figure of summary.json, ours and DLIO's, computed a second time from the series of steps, for several kinds of run.

Nothing of the product is used but the files it wrote: rank-R.steps.csv and checkpoints.csv. The definitions are those of
doc/reference/metrics.md.
"""
import csv
import json
import math
import os
import subprocess
import tempfile

MILLRACE = os.path.abspath(os.environ.get("MILLRACE", "build/bin/millrace"))

BASE = {
    "framework": "pytorch",
    "workflow": {"train": True},
    "dataset": {"format": "npz", "num_files_train": 44, "num_files_eval": 12, "record_length_bytes": 9000, "data_folder": "d"},
    "reader": {"data_loader": "pytorch", "batch_size": 3, "batch_size_eval": 2, "read_threads": 1, "sample_shuffle": "seed"},
    "train": {"epochs": 3, "computation_time": {"type": "normal", "mean": 0.002, "stdev": 0.0005}},
    "evaluation": {"eval_time": 0.001},
    "checkpoint": {"checkpoint_folder": "c"},
    "model": {"model_size_bytes": 60000},
}

# name, ranks, overrides
CASES = [
    ("plain", 1, []),
    ("no compute", 2, ["train.computation_time=0"]),
    ("evaluation", 3, ["workflow.evaluation=true"]),
    ("evaluation and checkpoints by steps", 2, ["workflow.evaluation=true", "workflow.checkpoint=true", "checkpoint.steps_between_checkpoints=3"]),
    ("checkpoints by epochs, all ranks write", 2, ["workflow.checkpoint=true", "checkpoint.epochs_between_checkpoints=2", "checkpoint.type=all_ranks",
                                                "checkpoint.fsync=true"]),
    ("uneven last batch", 3, ["reader.drop_last=false", "reader.batch_size=4", "workflow.evaluation=true"]),
    ("more warm-up left out", 2, ["output.metric.exclude_start_steps=2", "output.metric.exclude_end_steps=1", "workflow.evaluation=true"]),
    ("nothing left out", 1, ["output.metric.exclude_start_steps=0"]),
    ("cut short", 2, ["train.total_training_steps=10"]),
    ("one step per epoch", 1, ["reader.batch_size=40"]),
    ("five ranks without data", 5, ["dataset.format=synthetic"]),
    ("saves and loads only", 2, ["workflow.train=false", "workflow.checkpoint=true", "checkpoint.num_checkpoints_write=3", "checkpoint.num_checkpoints_read=2",
                                 "checkpoint.type=all_ranks", "checkpoint.time_between_checkpoints=0"]),
]


def mean(v):
    return sum(v) / len(v)


def stdev(v):
    return math.sqrt(mean([(x - mean(v)) ** 2 for x in v]))


def quantile(v, q):
    v = sorted(v)
    at = q * (len(v) - 1)
    low = int(at)
    return v[low] + (at - low) * (v[low + 1] - v[low]) if low + 1 < len(v) else v[-1]


def wall(x):
    return x["end_ns"] - x["start_ns"]


class Run:
    def __init__(self, name, ranks, overrides):
        self.name, self.ranks, self.checked = name, ranks, 0
        out = name.replace(" ", "-")
        p = subprocess.run([MILLRACE, "-q", "run", "w.yaml", "--generate", "--out", out, "--ranks", str(ranks), *overrides],
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert p.returncode == 0, (name, p.stderr)
        with open(f"{out}/summary.json") as f:
            self.summary = json.load(f)
        with open(f"{out}/config.json") as f:
            self.config = json.load(f)
        self.ours, self.dlio = self.summary["millrace"], self.summary["metric"]
        self.series = []
        for r in range(ranks):
            with open(f"{out}/rank-{r}.steps.csv") as f:
                self.series.append([{k: v if k == "phase" else int(v) for k, v in x.items()} for x in csv.DictReader(f)])
        self.checkpoints = []
        if os.path.exists(f"{out}/checkpoints.csv"):
            with open(f"{out}/checkpoints.csv") as f:
                self.checkpoints = [{k: v if k == "kind" else int(v) for k, v in x.items()} for x in csv.DictReader(f)]
        self.train = [[x for x in s if x["phase"] == "train"] for s in self.series]
        self.eval = [[x for x in s if x["phase"] == "eval"] for s in self.series]
        self.flat = [x for t in self.train for x in t]

    def near(self, got, want, what):
        self.checked += 1
        if want is None:
            assert got is None, (self.name, what, got, want)
            return
        assert got is not None and abs(got - want) <= 1e-9 * max(1e-3, abs(got), abs(want)), (self.name, what, got, want)


def check_quantiles(r, got, values, what):
    r.near(got["mean"], mean(values) if values else 0, what + " mean")
    for q, k in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99"), (1, "max")):
        r.near(got[k], quantile(values, q) if values else 0, f"{what} {k}")


def au(r, keep):
    """Mean over ranks of compute over wall, over the steps to keep, without those left out at the run's start and end."""
    per_rank = []
    for t in r.train:
        kept = [x for x in t[r.exclude_start:len(t) - r.exclude_end] if keep(x)]
        if kept:
            per_rank.append(sum(x["compute_ns"] for x in kept) / sum(map(wall, kept)))
    return mean(per_rank) if per_rank else None


def check_training(r):
    m = r.ours
    r.near(m["au"], au(r, lambda x: True), "au")
    r.near(m["au_cold"], au(r, lambda x: x["epoch"] == 0), "au_cold")
    r.near(m["au_warm"], au(r, lambda x: x["epoch"] > 0), "au_warm")
    low, high = m["au_ci95_low"], m["au_ci95_high"]
    assert (low is None) == (high is None) == (m["au"] is None) and (low is None or 0 <= low <= high <= 1), (r.name, "interval", low, high)
    for key in ("samples", "sample_bytes", "read_bytes"):
        r.near(m[key], sum(x[key] for x in r.flat), key)
    r.near(m["steps"], len(r.flat), "steps")
    last = max(x["end_ns"] + x["checkpoint_ns"] for x in r.flat)
    window = last - min(x["start_ns"] for x in r.flat)
    window -= sum(wall(x) + x["checkpoint_ns"] for x in r.eval[0] if x["start_ns"] < max(y["start_ns"] for y in r.train[0]))
    for key in ("samples", "sample_bytes", "read_bytes"):
        r.near(m[key + "_per_s"], m[key] / (window / 1e9), key + " per second")
    check_quantiles(r, m["stall_per_step_s"], [x["load_ns"] / 1e9 for x in r.flat], "stall")
    check_quantiles(r, m["step_s"], [wall(x) / 1e9 for x in r.flat], "step")
    stalled = [x for x in r.flat if x["load_ns"] > 0.05 * wall(x)]
    r.near(m["stalled_steps_share"], len(stalled) / len(r.flat), "stalled")
    r.near(m["first_step_load_s"], max(t[0]["load_ns"] for t in r.train) / 1e9, "first step")
    load = sum(x["load_ns"] for x in r.flat)
    r.near(m["epoch_start_stall_share"], sum(x["load_ns"] for x in r.flat if x["step"] == 0) / load if load else 0, "epoch start")
    compute = mean([x["compute_ns"] / 1e9 for x in r.flat])
    r.near(m["compute_mean_s"], compute, "compute")
    demand = sum(x["read_bytes"] for x in r.flat) / len(r.flat) * r.ranks / compute if compute else None
    r.near(m["demand_bytes_per_s"], demand, "demand")
    stalled = [x for x in stalled if x["step"]]
    supply = sum(x["read_bytes"] for x in stalled) / (sum(map(wall, stalled)) / 1e9) * r.ranks if len(stalled) >= 3 else None
    r.near(m["supply_bytes_per_s"], supply, "supply")
    if demand and supply is not None:
        r.near(m["headroom"], supply / demand, "headroom")


def check_duration(r):
    events = [(x["start_ns"], x["end_ns"] + x["checkpoint_ns"]) for s in r.series for x in s]
    events += [(c["start_ns"], c["start_ns"] + c["duration_ns"]) for c in r.checkpoints]
    r.near(r.ours["duration_s"], (max(e[1] for e in events) - min(e[0] for e in events)) / 1e9, "duration")


def ceiling(r, per_rank):
    """Without stalls; ranks that meet at barriers go on when the slowest comes."""
    lost = mean([p["data_stall"] + p["checkpoint"] for p in per_rank])
    if any(x["barrier_ns"] for s in r.series for x in s):
        saved = 0
        for i in range(min(len(s) for s in r.series)):
            busy = [s[i]["copy_ns"] + s[i]["compute_wall_ns"] for s in r.series]
            took = [b + s[i]["load_ns"] + (s[i - 1]["checkpoint_ns"] if i else 0) for b, s in zip(busy, r.series)]
            saved += max(took) - max(busy)
        parts = []
        for s, p in zip(r.series, per_rank):
            window = s[-1]["end_ns"] + s[-1]["checkpoint_ns"] - s[0]["start_ns"]
            parts.append(min((saved + s[-1]["checkpoint_ns"]) / window, p["data_stall"] + p["checkpoint"] + p["barrier"]))
        lost = max(lost, mean(parts))
    return 1 / (1 - lost)


def check_split(r):
    m = r.ours
    parts = {"compute": "compute_ns", "data_stall": "load_ns", "barrier": "barrier_ns", "checkpoint": "checkpoint_ns", "device_copy": "copy_ns"}
    per_rank = []
    for s in r.series:
        window = s[-1]["end_ns"] + s[-1]["checkpoint_ns"] - s[0]["start_ns"]
        shares = {k: sum(x[c] for x in s) / window for k, c in parts.items()}
        shares["other"] = 1 - sum(shares.values())
        assert shares["other"] > -1e-9, (r.name, "parts of a step overlap", shares)
        per_rank.append(shares)
    for k in m["time_split"]:
        r.near(m["time_split"][k], mean([p[k] for p in per_rank]), "split " + k)
    r.near(sum(m["time_split"].values()), 1, "split adds up")
    worst = max(range(r.ranks), key=lambda i: per_rank[i]["data_stall"])
    for k in m["time_split_worst_rank"]:
        r.near(m["time_split_worst_rank"][k], per_rank[worst][k], "worst split " + k)
    r.near(m["ceiling_speedup"], ceiling(r, per_rank), "ceiling")


def check_epochs(r):
    assert [e["epoch"] for e in r.ours["epochs"]] == sorted({x["epoch"] for x in r.flat}), (r.name, "epochs")
    for e in r.ours["epochs"]:
        steps = [x for x in r.flat if x["epoch"] == e["epoch"]]
        took = (max(x["end_ns"] + x["checkpoint_ns"] for x in steps) - min(x["start_ns"] for x in steps)) / 1e9
        r.near(e["duration_s"], took, "epoch duration")
        r.near(e["samples_per_s"], sum(x["samples"] for x in steps) / took, "epoch samples/s")
        r.near(e["read_bytes_per_s"], sum(x["read_bytes"] for x in steps) / took, "epoch bytes/s")
        r.near(e["au"], au(r, lambda x: x["epoch"] == e["epoch"]), "epoch au")
        r.near(e["data_stall_share"], sum(x["load_ns"] for x in steps) / sum(map(wall, steps)), "epoch stall")
        r.near(e["first_step_s"], max(wall(x) for x in steps if x["step"] == 0) / 1e9, "epoch first step")
        r.near(e["steps_per_rank"], sum(x["epoch"] == e["epoch"] for x in r.train[0]), "epoch steps")


def check_imbalance(r):
    if r.ranks < 2:
        return
    rel, cv, cost = [], [], 0
    for steps in zip(*r.series):
        t = [x["load_ns"] + x["copy_ns"] + x["compute_wall_ns"] for x in steps]
        rel.append((max(t) - mean(t)) / mean(t))
        cv.append(stdev(t) / mean(t))
        cost += (max(t) - mean(t)) / 1e9
    r.near(r.ours["imbalance"], mean(rel), "imbalance")
    assert abs(r.ours["imbalance_cv"] - mean(cv)) < 1e-6, (r.name, "imbalance cv")
    r.near(r.ours["imbalance_cost_s"], cost, "imbalance cost")


def check_checkpoints(r):
    m = r.ours["checkpoint"]
    for kind, many, one in (("save", "saves", "saved"), ("load", "loads", "loaded")):
        mine = [[c for c in r.checkpoints if c["kind"] == kind and c["rank"] == k] for k in range(r.ranks)]
        r.near(m[many], len(mine[0]), many)
        slowest = [max(c["duration_ns"] for c in same) / 1e9 for same in zip(*mine)]
        total = sum(c["bytes"] for k in mine for c in k)
        r.near(m[one + "_bytes"], total, one)
        check_quantiles(r, m[kind + "_s"], slowest, kind)
        r.near(m[kind + "_bytes_per_s"], total / sum(slowest) if slowest else 0, kind + " rate")
        if not slowest:
            continue
        # DLIO: rank 0's time only
        took = [c["duration_ns"] / 1e9 for c in mine[0]]
        rate = [sum(c["bytes"] for c in same) / 2 ** 30 / t for same, t in zip(zip(*mine), took)]
        r.near(r.dlio[kind + "_checkpoint_duration_mean_seconds"], mean(took), "DLIO " + kind)
        r.near(r.dlio[kind + "_checkpoint_io_mean_GB_per_second"], mean(rate), f"DLIO {kind} rate")
        assert abs(r.dlio[kind + "_checkpoint_duration_stdev_seconds"] - stdev(took)) < 1e-7, (r.name, kind)
        assert abs(r.dlio[kind + "_checkpoint_io_stdev_GB_per_second"] - stdev(rate)) < 1e-6 * max(1, mean(rate)), (r.name, kind)
    saves = [c for c in r.checkpoints if c["kind"] == "save"]
    busy = sum(c["write_ns"] + c["fsync_ns"] for c in saves)
    r.near(m["fsync_share"], sum(c["fsync_ns"] for c in saves) / busy if busy else 0, "share of fsync")


def dlio_block(b, per_epoch, start, end):
    """AU in percent and the time it refers to. Steps outside start..last are left out, by their number in the block."""
    last = per_epoch - 1 - end
    proc = [(x["load_ns"] + x["copy_ns"] + x["compute_wall_ns"]) / 1e9 for x in b]
    compute = [x["compute_wall_ns"] / 1e9 for x in b]
    time = (b[-1]["end_ns"] - b[0]["start_ns"]) / 1e9 - sum(proc[:start]) - sum(proc[last + 1:])
    kept = sum(compute[start:last + 1])
    return (100 * kept / time if kept else 0), time


def check_dlio(r, start, end, batch, batch_eval, per_epoch, per_eval, record):
    d = r.dlio
    au_epochs, rate_epochs = [], []
    for e in sorted({x["epoch"] for x in r.flat}):
        ranks = []
        for t in r.train:
            blocks = []
            mine = [x for x in t if x["epoch"] == e]
            for k in sorted({x["block"] for x in mine}):
                b = [x for x in mine if x["block"] == k]
                a, time = dlio_block(b, per_epoch, start, end)
                blocks.append((len(b), a, (len(b) - 2) / time * batch))
            n = sum(b[0] for b in blocks)
            ranks.append((sum(b[0] * b[1] for b in blocks) / n, sum(b[0] * b[2] for b in blocks) / n))
        au_epochs.append(mean([x[0] for x in ranks]))
        rate_epochs.append(sum(x[1] for x in ranks))
    check_dlio_kind(r, "train", au_epochs, rate_epochs, record)
    if not r.eval[0]:
        assert "eval_au_percentage" not in d, (r.name, "evaluation that was not")
        return
    au_epochs, rate_epochs = [], []
    for e in sorted({x["epoch"] for x in r.eval[0]}):
        ranks = []
        for s in r.eval:
            b = [x for x in s if x["epoch"] == e]
            ranks.append((dlio_block(b, per_eval, start, end)[0], len(b) / ((b[-1]["end_ns"] - b[0]["start_ns"]) / 1e9) * batch_eval))
        au_epochs.append(mean([x[0] for x in ranks]))
        rate_epochs.append(sum(x[1] for x in ranks))
    check_dlio_kind(r, "eval", au_epochs, rate_epochs, record)


def check_dlio_kind(r, kind, au_epochs, rate_epochs, record):
    d = r.dlio
    for key, want in ((f"{kind}_au_percentage", au_epochs), (f"{kind}_throughput_samples_per_second", rate_epochs)):
        assert len(d[key]) == len(want), (r.name, key)
        for a, b in zip(d[key], want):
            r.near(a, b, key)
    r.near(d[f"{kind}_au_mean_percentage"], mean(au_epochs), kind + " au mean")
    r.near(d[f"{kind}_au_stdev_percentage"], stdev(au_epochs), kind + " au stdev")
    r.near(d[f"{kind}_throughput_mean_samples_per_second"], mean(rate_epochs), kind + " rate mean")
    r.near(d[f"{kind}_throughput_stdev_samples_per_second"], stdev(rate_epochs), kind + " rate stdev")
    r.near(d[f"{kind}_io_mean_MB_per_second"], mean(rate_epochs) * record / 2 ** 20, kind + " io mean")
    r.near(d[f"{kind}_io_stdev_MB_per_second"], stdev(rate_epochs) * record / 2 ** 20, kind + " io stdev")
    assert d[f"{kind}_au_meet_expectation"] == ("success" if mean(au_epochs) >= 90 else "fail"), (r.name, kind)


def setting(overrides, key, default):
    return next((int(o.split("=")[1]) for o in overrides if o.startswith(key + "=")), default)


def one(name, ranks, overrides):
    r = Run(name, ranks, overrides)
    r.exclude_start = setting(overrides, "output.metric.exclude_start_steps", 1)
    r.exclude_end = setting(overrides, "output.metric.exclude_end_steps", 0)
    check_checkpoints(r)
    check_duration(r)
    if not r.flat:
        assert r.checkpoints, (name, "nothing was measured")
        print(f"{name}: {r.checked} figures")
        return
    check_training(r)
    check_split(r)
    check_epochs(r)
    check_imbalance(r)
    batch = setting(overrides, "reader.batch_size", 3)
    files = 44 if "reader.drop_last=false" not in overrides else -(-44 // ranks) * ranks
    per_epoch = files // ranks // batch if "reader.drop_last=false" not in overrides else -(-(files // ranks) // batch)
    per_eval = 12 // ranks // 2
    check_dlio(r, r.exclude_start, r.exclude_end, batch, 2, per_epoch, per_eval, 9000)
    print(f"{name}: {len(r.flat)} steps, {r.checked} figures")


def main():
    with tempfile.TemporaryDirectory() as tmp:
        os.chdir(tmp)
        with open("w.yaml", "w") as f:
            json.dump(BASE, f)
        for case in CASES:
            one(*case)
        os.chdir("/")


if __name__ == "__main__":
    main()
