"""DLIO's figures in summary.json equal what DLIO's own statistics counter says about the same steps.

The steps that `millrace run` recorded are played to DLIO's StatsCounter on a clock that shows the recorded times; what it
then reports is compared with the `metric` part of summary.json. Needs DLIO, in the environment that `bench/run_dlio --install`
makes (or in MR_DLIO_VENV); skipped without it.

Where DLIO 2.0.0 (the release on PyPI) differs from the DLIO of 2025 and 2026, whose formulas Millrace follows, the figure is
checked against the 2.0.0 formula instead, so that the clock is known to be right:
- training rate: 2.0.0 counts all steps over the whole block, later versions (steps - 2) over the time without the steps left out;
- with several ranks all versions add Python lists of evaluation figures over MPI, which joins the lists: their evaluation AU is
  divided by the ranks once more, and their rate is a rank's, not the job's. Millrace reports the mean and the sum.


test-label: full"""
import csv
import json
import math
import os
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
MILLRACE = os.path.abspath(os.environ.get("MILLRACE", "build/bin/millrace"))
VENV = os.environ.get("MR_DLIO_VENV", os.path.join(ROOT, "build", "dlio", "venv"))

WORKLOAD = {
    "workflow": {"train": True, "evaluation": True, "checkpoint": True},
    "dataset": {"format": "npz", "num_files_train": 36, "num_files_eval": 12, "record_length_bytes": 7000, "data_folder": "d"},
    "reader": {"batch_size": 3, "batch_size_eval": 2, "read_threads": 1},
    "train": {"epochs": 3, "computation_time": {"type": "normal", "mean": 0.002, "stdev": 0.0005}},
    "evaluation": {"eval_time": 0.001},
    "checkpoint": {"checkpoint_folder": "c", "steps_between_checkpoints": 5},
    "model": {"model_size_bytes": 20000},
}
CASES = [("plain", 1, ["workflow.evaluation=false", "workflow.checkpoint=false"]),
         ("evaluation", 1, ["workflow.checkpoint=false"]),
         ("checkpoints", 1, ["workflow.evaluation=false"]),
         ("everything on two ranks", 2, []),
         ("three ranks", 3, ["workflow.checkpoint=false"])]


class Clock:
    now = 0.0


class Comm:
    """MPI's sum over ranks that are played one after the other: the others' values are given."""

    def __init__(self, size, others):
        self.size, self.others, self.given = size, list(others), []

    def allreduce(self, value):
        self.given.append(value)
        for values in self.others:
            value = value + values[len(self.given) - 1]
        return value

    def Reduce(self, source, target, op=None, root=0):
        target[...] = source


class Mpi:
    def __init__(self, rank, size, others):
        self._rank, self._size, self._comm = rank, size, Comm(size, others)

    def rank(self): return self._rank
    def size(self): return self._size
    def comm(self): return self._comm
    def npernode(self): return self._size
    def nnodes(self): return 1
    def local_rank(self): return self._rank


def counter(module, args, rank, ranks, others):
    args.my_rank, args.comm_size = rank, ranks
    mpi = Mpi(rank, ranks, others)

    class Instance:
        @staticmethod
        def get_instance():
            return mpi
    module.DLIOMPI = Instance
    module.time = lambda: Clock.now
    return module.StatsCounter(), mpi


def feed(stats, series, evaluates):
    """Calls the counter as DLIO's training loop does."""
    stats.start_run()
    for epoch in sorted({x["epoch"] for x in series}):
        stats.start_train(epoch + 1)
        train = [x for x in series if x["epoch"] == epoch and x["phase"] == "train"]
        for block in sorted({x["block"] for x in train}):
            steps = [x for x in train if x["block"] == block]
            Clock.now = steps[0]["start_ns"] / 1e9
            stats.start_block(epoch + 1, block)
            for x in steps:
                play(stats.batch_loaded, stats.batch_processed, x, epoch + 1, block)
            Clock.now = steps[-1]["end_ns"] / 1e9
            stats.end_block(epoch + 1, block, len(steps))
        stats.end_train(epoch + 1, len(train))
        steps = [x for x in series if x["epoch"] == epoch and x["phase"] == "eval"]
        if evaluates and steps:
            Clock.now = steps[0]["start_ns"] / 1e9
            stats.start_eval(epoch + 1)
            for x in steps:
                play(stats.eval_batch_loaded, stats.eval_batch_processed, x, epoch + 1, None)
            Clock.now = steps[-1]["end_ns"] / 1e9
            stats.end_eval(epoch + 1)
    stats.end_run()


def play(loaded, processed, x, epoch, block):
    where = (epoch, x["step"] + 1) if block is None else (epoch, x["step"] + 1, block)
    start, compute = x["start_ns"] / 1e9, x["compute_wall_ns"] / 1e9
    Clock.now = start + (x["load_ns"] + x["copy_ns"]) / 1e9
    if hasattr(FEED["stats"], "start_loading"):  # later versions keep the times themselves
        Clock.now, then = start, Clock.now
        FEED["stats"].start_loading()
        Clock.now = then
        loaded(*where)
        FEED["stats"].start_compute()
        Clock.now = then + compute
        processed(*where)
    else:
        loaded(*where, start)
        Clock.now += compute
        processed(*where, start, compute)


FEED = {}


def child(job):
    """Runs in DLIO's environment: prints DLIO's figures."""
    import logging
    logging.disable(logging.CRITICAL)
    import dlio_benchmark.utils.utility as utility
    utility.DLIOMPI.get_instance().set_parent_values(0, job["ranks"])  # no MPI in this process
    from dlio_benchmark.utils import statscounter
    from dlio_benchmark.utils.config import ConfigArguments
    args = ConfigArguments.get_instance()
    args.output_folder = job["folder"]
    args.num_files_train, args.num_files_eval, args.num_samples_per_file = 36, 12, 1
    args.record_length, args.batch_size, args.batch_size_eval = 7000, 3, 2
    args.do_eval, args.au = job["evaluates"], 0.9
    others = []
    for rank in list(range(1, job["ranks"])) + [0]:
        stats, mpi = counter(statscounter, args, rank, job["ranks"], others if rank == 0 else [])
        FEED["stats"] = stats
        feed(stats, job["series"][rank], job["evaluates"])
        others.append(mpi.comm().given)
    later = hasattr(stats, "metric_start_step")
    print(json.dumps({"metric": stats.summary["metric"], "later": later}, default=float))


def read_series(folder, ranks):
    series = []
    for r in range(ranks):
        with open(f"{folder}/rank-{r}.steps.csv") as f:
            series.append([{k: v if k == "phase" else int(v) for k, v in x.items()} for x in csv.DictReader(f)])
    return series


def old_rates(series):
    """The training rate of 2.0.0, per epoch, all ranks."""
    out = []
    for epoch in sorted({x["epoch"] for x in series[0]}):
        total = 0
        for s in series:
            train = [x for x in s if x["epoch"] == epoch and x["phase"] == "train"]
            weighted = 0
            for block in {x["block"] for x in train}:
                b = [x for x in train if x["block"] == block]
                weighted += len(b) * len(b) / ((b[-1]["end_ns"] - b[0]["start_ns"]) / 1e9) * 3
            total += weighted / len(train)
        out.append(total)
    return out


def near(got, want, what):
    # DLIO's clock is a double of seconds: a microsecond's rounding in a step of a millisecond is far below this.
    assert math.isclose(got, want, rel_tol=1e-6, abs_tol=1e-9), (what, got, want)


def compare(name, ranks, theirs, later, ours, series, evaluates):
    for a, b in zip(theirs["train_au_percentage"], ours["train_au_percentage"], strict=True):
        near(b, a, (name, "train au"))
    for key in ("train_au_mean_percentage", "train_au_stdev_percentage"):
        near(ours[key], theirs[key], (name, key))
    assert ours["train_au_meet_expectation"] == theirs["train_au_meet_expectation"], name
    want = theirs["train_throughput_samples_per_second"]
    got = ours["train_throughput_samples_per_second"] if later else old_rates(series)
    for a, b in zip(want, got, strict=True):
        near(b, a, (name, "train rate"))
    near(theirs["train_io_mean_MB_per_second"] / theirs["train_throughput_mean_samples_per_second"],
         ours["train_io_mean_MB_per_second"] / ours["train_throughput_mean_samples_per_second"], (name, "MB per sample"))
    if not evaluates:
        return
    near(ours["eval_au_mean_percentage"], theirs["eval_au_mean_percentage"] * ranks, (name, "eval au"))
    near(ours["eval_throughput_mean_samples_per_second"], theirs["eval_throughput_mean_samples_per_second"] * ranks, (name, "eval rate"))
    if ranks == 1:
        for key in ("eval_au_percentage", "eval_throughput_samples_per_second"):
            for a, b in zip(theirs[key], ours[key], strict=True):
                near(b, a, (name, key))
        for key in ("eval_au_stdev_percentage", "eval_throughput_stdev_samples_per_second", "eval_io_mean_MB_per_second", "eval_io_stdev_MB_per_second"):
            near(ours[key], theirs[key], (name, key))


def one(name, ranks, overrides):
    folder = os.path.abspath(name.replace(" ", "-"))
    subprocess.run([MILLRACE, "-q", "run", "w.yaml", "--generate", "--out", folder, "--ranks", str(ranks), *overrides], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    with open(f"{folder}/summary.json") as f:
        ours = json.load(f)["metric"]
    evaluates = "workflow.evaluation=false" not in overrides
    series = read_series(folder, ranks)
    job = {"ranks": ranks, "series": series, "evaluates": evaluates, "folder": folder}
    p = subprocess.run([f"{VENV}/bin/python3", os.path.abspath(__file__), "--child"], input=json.dumps(job), text=True, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, env=dict(os.environ, PYTHONDONTWRITEBYTECODE="1"))
    assert p.returncode == 0, p.stderr[-2000:]
    answer = json.loads(p.stdout.strip().splitlines()[-1])
    compare(name, ranks, answer["metric"], answer["later"], ours, series, evaluates)
    print(f"{name}: equal" + ("" if answer["later"] else " (training rate by the formula of 2.0.0)"))


def main():
    if not os.path.exists(f"{VENV}/bin/dlio_benchmark"):
        print("SKIP: no DLIO in build/dlio/venv; 'bench/run_dlio --install' puts it there")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as tmp:
        os.chdir(tmp)
        with open("w.yaml", "w") as f:
            json.dump(WORKLOAD, f)
        for case in CASES:
            one(*case)
        os.chdir("/")


if __name__ == "__main__":
    if "--child" in sys.argv:
        child(json.load(sys.stdin))
    else:
        main()
