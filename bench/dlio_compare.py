"""Measures DLIO, Millrace and the floor on the same files. Started by bench/run_dlio, which installs DLIO.

The rule, the same for every row: samples of an epoch / its wall clock; the figure of a side is its best epoch over all its
runs, its first epoch left out (DLIO starts its workers in it); sides run in turn. The wall clock of an epoch is, for DLIO, from
"start" to "end" of per_epoch_stats.json; for Millrace, from the last step's end of the epoch before to the last step's end in
the series of steps, so that everything between epochs counts against it; for the floor, of one pass over all samples. CPU time per sample is the least of a side's runs, without what a job of one step
costs; it hardly depends on what else the machine does.

Both get the same workload file. Nothing is shuffled, compute takes no time, the page cache is warm. DLIO throws the bytes it
read away and hands a constant array on; Millrace puts the bytes read into the batch, and so does the floor.
"""
import argparse
import csv
import datetime
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time

GIB, MIB = 1 << 30, 1 << 20

# name, format, files, samples per file, bytes, batch, workers, workers for DLIO as shipped (its cost per sample grows with the
# set: an epoch of the sets of 16,384 samples takes minutes)
WORKLOADS = [
    ("unet3d npz 155.7 MB", "npz", 28, 1, 155750400, 4, (0, 2), (0, 2)),
    ("npz 1 MiB", "npz", 2048, 1, 1048576, 16, (0, 2), (0, 2)),
    ("jpeg 65 kB", "jpeg", 4096, 1, 114660, 64, (0, 2), (0, 2)),
    ("hdf5 x1 115 kB", "hdf5", 4096, 1, 114660, 64, (0, 2), (0, 2)),
    ("hdf5 x16 115 kB", "hdf5", 1024, 16, 114660, 64, (2,), (2,)),
    ("indexed_binary x16 114 kB", "indexed_binary", 1024, 16, 114244, 64, (0, 2), (2,)),
]


class Failed(Exception):
    pass


def say(text):
    print(text, file=sys.stderr, flush=True)


def run(argv, env=None, limit=1800):
    """Wall seconds, peak resident bytes of the largest process, output, CPU seconds of the process and its children."""
    start = time.monotonic()
    with open(os.path.join(A.home, "last.log"), "w+b") as log:
        p = subprocess.Popen(argv, stdout=log, stderr=subprocess.STDOUT, env=env)
        deadline = start + limit
        while True:
            pid, status, usage = os.wait4(p.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() > deadline:
                p.kill()
                os.wait4(p.pid, 0)
                raise Failed(f"'{argv[0]}' took longer than {limit} s")
            time.sleep(0.002)
        wall = time.monotonic() - start
        log.seek(0)
        text = log.read().decode(errors="replace")
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode != 0:
        lines = [x for x in text.splitlines() if x.strip()]
        why = [x for x in lines if "Error" in x or "Exception" in x] or lines or ["no output"]
        raise Failed(f"'{os.path.basename(argv[0])}' ended with {p.returncode}: {why[-1]}")
    return wall, usage.ru_maxrss * 1024, text, usage.ru_utime + usage.ru_stime


def workload(name, fmt, files, per_file, size, batch, workers, **sections):
    """One workload file for both programs, in DLIO 2.0.0's keys."""
    w = {
        "model": {"name": name.split()[0]},
        "framework": "pytorch",
        "workflow": {"generate_data": False, "train": True},
        "dataset": {"data_folder": A.data, "format": fmt, "num_files_train": files, "num_samples_per_file": per_file, "record_length": size},
        "reader": {"data_loader": "pytorch", "batch_size": batch, "read_threads": workers},
        "train": {"epochs": 2, "computation_time": 0},
    }
    if fmt == "npz" and size > 100 * MIB:
        w["dataset"]["record_length_resize"] = 2097152  # as the preset says; see millrace()
    for k, v in sections.items():
        w.setdefault(k, {}).update(v)
    folder = os.path.join(A.home, "cfg", "workload")
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, "compare.yaml")
    with open(path, "w") as f:
        json.dump(w, f, indent=1)  # JSON is YAML
    return path


def dlio(variant, *overrides, limit=1800):
    """Runs DLIO on cfg/workload/compare.yaml; its results folder."""
    out = os.path.join(A.home, "out-dlio")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if variant == "P":
        env["PYTHONPATH"] = os.path.join(A.home, "patched")
    argv = [os.path.join(A.dlio, "bin", "dlio_benchmark"), f"--config-dir={os.path.join(A.home, 'cfg')}", "workload=compare",
            f"hydra.run.dir={out}", f"++workload.output.folder={out}"] + ["++workload." + o for o in overrides]
    wall, rss, text, cpu = run(argv, env, limit)
    return {"wall_s": wall, "rss_bytes": rss, "out": out, "text": text, "cpu_s": cpu}


def stamp(text):
    return datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%f").timestamp()


def dlio_epochs(variant, samples, epochs):
    r = dlio(variant, f"train.epochs={epochs}")
    with open(os.path.join(r["out"], "per_epoch_stats.json")) as f:
        stats = json.load(f)
    with open(os.path.join(r["out"], "0_output.json")) as f:
        series = json.load(f)
    rates = []
    for e in range(2, epochs + 1):
        steps = sum(len(v) for v in series[str(e)]["proc"].values())
        if steps != samples // A.batch:
            raise Failed(f"DLIO did {steps} steps in epoch {e}, want {samples // A.batch}")
        rates.append(samples / (stamp(stats[str(e)]["end"]) - stamp(stats[str(e)]["start"])))
    return rates, r["rss_bytes"], max(0, r["cpu_s"] - A.dlio_start_cpu_s) / (epochs * samples)


def millrace(path, samples, epochs, *args):
    out = os.path.join(A.home, "out-millrace")
    shutil.rmtree(out, ignore_errors=True)
    wall, rss, _, cpu = run([A.millrace, "-q", "run", path, f"train.epochs={epochs}", "dataset.record_length_bytes_resize=0", "--no-ceiling", "--out", out, *args])
    end = {}
    given = {}
    with open(os.path.join(out, "rank-0.steps.csv")) as f:
        for x in csv.DictReader(f):
            e = int(x["epoch"])
            end[e] = int(x["end_ns"])
            n, b = given.get(e, (0, 0))
            given[e] = (n + int(x["samples"]), b + int(x["sample_bytes"]))
    with open(os.path.join(out, "summary.json")) as f:
        s = json.load(f)["millrace"]
    for e, (n, b) in given.items():
        if n != samples:
            raise Failed(f"millrace did {n} samples in epoch {e}, want {samples}")
    rates = [samples / ((end[e] - end[e - 1]) / 1e9) for e in range(1, epochs)]
    cpu = max(0, cpu - A.millrace_start_cpu_s) / (epochs * samples)
    return rates, rss, s["per_rank"][0]["slab_bytes"], given[0][1] / samples, cpu


def floor(samples, workers, passes):
    slabs = 3 if workers else 1  # prefetch_size 2 and the batch in the trainer's hands
    text = run([A.floor, A.data, str(max(1, workers)), str(A.batch), str(slabs), str(passes)])[2]
    rates, cpu = [], []
    for line in text.splitlines():
        n, wall, took = line.split()
        if int(n) != samples:
            raise Failed(f"the floor read {n} samples, want {samples}")
        rates.append(int(n) / float(wall))
        cpu.append(float(took) / int(n))
    return rates[1:], statistics.mean(cpu[1:])


def data_bytes(folder, fmt):
    return sum(e.stat().st_size for e in os.scandir(os.path.join(folder, "train")) if not e.name.endswith(".mrm"))


def clear(folder):
    shutil.rmtree(folder, ignore_errors=True)


def scaled(files, per_file, batch):
    """Files such that every epoch has whole batches, at least two."""
    samples = max(2 * batch, int(files * per_file * A.scale) // batch * batch)
    return max(1, -(-samples // per_file))


def need_valid():
    """DLIO wants the folder of the evaluation set even when it does not evaluate."""
    os.makedirs(os.path.join(A.data, "valid"), exist_ok=True)


def make_data(fmt, files, per_file, size):
    """DLIO's own files where it can write them in reasonable time, else Millrace's in DLIO's layout."""
    clear(A.data)
    made_by = None
    if A.dlio and fmt != "indexed_binary":
        dlio("P", "workflow.generate_data=True", "workflow.train=False", "dataset.generation_buffer_size=4194304")
        run([A.millrace, "-q", "scan", os.path.join(A.data, "train"), "--format", fmt])
        made_by = "DLIO"
    else:
        side = int(size ** 0.5)
        run([A.millrace, "-q", "gen", A.data, "--format", fmt, "--files", str(files), "--samples-per-file", str(per_file), "--size", str(side * side)])
        made_by = "millrace"
        need_valid()
    subprocess.run(["sync"], check=False)
    return made_by


def least(row, who, cpu_s):
    key = who + "_cpu_s_per_sample"
    row[key] = min(row.get(key, cpu_s), cpu_s)


def guarded(row, key, fn):
    try:
        return fn()
    except Failed as e:
        row.setdefault("failed", {})[key] = str(e)
        say(f"  {key}: {e}")
        return None


def one_row(name, fmt, files, per_file, size, batch, workers, shipped):
    row = {"workload": name, "workers": workers, "files": files, "samples_per_file": per_file, "batch": batch}
    samples = files * per_file // batch * batch
    path = workload(name, fmt, files, per_file, size, batch, workers)
    rates = {"S": [], "P": [], "millrace": [], "floor": []}
    floor(samples, workers, 2)  # reads everything once: the page cache is warm for all
    passes = 12
    for k in range(A.rounds):
        if A.dlio:
            if shipped and k == 0:
                r = guarded(row, "S", lambda: dlio_epochs("S", samples, 2))
                rates["S"] += r[0] if r else []
            r = guarded(row, "P", lambda: dlio_epochs("P", samples, 4))
            if r:
                rates["P"] += r[0]
                row["dlio_rss_bytes"] = max(row.get("dlio_rss_bytes", 0), r[1])
                least(row, "P", r[2])
        for who in ("millrace", "floor") if k % 2 == 0 else ("floor", "millrace"):
            if who == "floor":
                r = guarded(row, "floor", lambda: floor(samples, workers, passes))
                if r:
                    rates["floor"] += r[0]
                    least(row, "floor", r[1])
            else:
                r = guarded(row, "millrace", lambda: millrace(path, samples, passes))
                if r:
                    rates["millrace"] += r[0]
                    row["millrace_rss_bytes"], row["millrace_slab_bytes"], row["sample_bytes"] = r[1], r[2], r[3]
                    least(row, "millrace", r[4])
    for k, v in rates.items():
        if v:
            row[k + "_samples_per_s"] = max(v)
            row[k + "_median_samples_per_s"] = statistics.median(v)
            row[k + "_epochs"] = len(v)
    if A.dlio and not shipped:
        row["S_left_out"] = "takes minutes per epoch"
    judge(row)
    return row


def judge(row):
    """The budgets: 10 x S and 5 x P, where the floor is that high; 0.9 of the floor always."""
    m, f = row.get("millrace_samples_per_s"), row.get("floor_samples_per_s")
    misses, notes = [], []
    if not m or not f:
        row.update(verdict="MISS: no figure", met=False)
        return
    row["of_floor"] = m / f
    if m < 0.9 * f:
        misses.append("floor")
    for who, times in (("S", 10), ("P", 5)):
        d = row.get(who + "_samples_per_s")
        if not d:
            continue
        row["over_" + who] = m / d
        row["floor_over_" + who] = f / d
        if m < times * d:
            if f < times * d:
                notes.append(f"floor allows only {f / d:.1f} x {who}")
            else:
                misses.append(f"{times} x {who}")
    row["met"] = not misses
    row["verdict"] = "; ".join((["MISS: " + ", ".join(misses)] if misses else ["ok"]) + notes)


def fmt_rate(v):
    return "-" if v is None else f"{v:,.0f}" if v >= 100 else f"{v:.1f}"


def fmt_row(r):
    def get(k, pattern="{:.1f}"):
        return pattern.format(r[k]) if r.get(k) else "-"
    cells = [r["workload"], str(r["workers"])]
    for k in ("S", "P", "millrace", "floor"):
        v = r.get(k + "_samples_per_s")
        cells.append(fmt_rate(v) if v else "failed" if k in r.get("failed", {}) else "-")
    mb = r["millrace_samples_per_s"] * r["sample_bytes"] / 1e6 if r.get("millrace_samples_per_s") else None
    cells += [fmt_rate(mb), get("over_S"), get("over_P"), get("of_floor", "{:.2f}"), r["verdict"]]
    spread = " / ".join(f"{100 * (1 - r[k + '_median_samples_per_s'] / r[k + '_samples_per_s']):.0f}" if r.get(k + "_samples_per_s") else "-"
                        for k in ("S", "P", "millrace", "floor"))
    cpu = " / ".join(f"{1e6 * r[k + '_cpu_s_per_sample']:.4g}" if r.get(k + "_cpu_s_per_sample") else "-" for k in ("P", "millrace", "floor"))
    return "| " + " | ".join(cells + [cpu, spread + " %"]) + " |"


def wanted(name):
    return not A.only or A.only in name


class Output:
    def __init__(self):
        self.rows, self.others = [], []
        self.file = open(os.path.join(A.build, "dlio.md"), "w")

    def line(self, text=""):
        print(text, flush=True)
        print(text, file=self.file, flush=True)


def reading(out):
    out.line("| workload | workers | DLIO as shipped | DLIO without its debug line | millrace | floor | millrace MB/s | x shipped | x without | of floor | budgets: 10 x, 5 x, 0.90 | CPU us per sample: DLIO without / millrace / floor | median below best: S / P / millrace / floor |")
    out.line("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for name, fmt, files, per_file, size, batch, workers, shipped in WORKLOADS:
        if not wanted(name):
            continue
        n = scaled(files, per_file, batch)
        A.batch = batch
        workload(name, fmt, n, per_file, size, batch, 0)
        say(f"{name}: making {n} files")
        try:
            made_by = make_data(fmt, n, per_file, size)
        except Failed as e:
            out.rows.append({"workload": name, "workers": "", "verdict": f"MISS: {e}", "met": False})
            out.line(fmt_row(out.rows[-1]))
            continue
        for w in workers:
            say(f"{name}: {w} workers")
            try:
                row = one_row(name, fmt, n, per_file, size, batch, w, w in shipped)
            except Failed as e:
                row = {"workload": name, "workers": w, "verdict": f"MISS: {e}", "met": False}
            row["data_made_by"] = made_by
            out.rows.append(row)
            out.line(fmt_row(row))
    clear(A.data)


def other(out, what, unit, theirs, ours, budget="", met=True, note=""):
    row = {"what": what, "unit": unit, "dlio": theirs, "millrace": ours, "budget": budget, "met": met, "note": note}
    out.others.append(row)
    cell = lambda v: "-" if v is None else f"{v:.4g}"
    out.line(f"| {what} | {unit} | {cell(theirs)} | {cell(ours)} | {budget} | {'' if not budget else 'ok' if met else 'MISS'} | {note} |")


def start_up():
    """A job of one step over four small files, start to end. Its CPU time is what a run costs before and after the samples."""
    A.batch = 4
    path = workload("start", "npz", 4, 1, 4096, 4, 0, train={"epochs": 1})
    small_set()
    theirs = [dlio("S") for _ in range(3)] if A.dlio else []
    folder = os.path.join(A.home, "out-millrace")
    ours = [run([A.millrace, "-q", "run", path, "--out", folder, "--overwrite"]) for _ in range(20)]
    dry = min(run([A.millrace, "run", "--dry-run", path])[0] for _ in range(20))
    A.dlio_start_cpu_s = min((x["cpu_s"] for x in theirs), default=0)
    A.millrace_start_cpu_s = min(x[3] for x in ours)
    return theirs, ours, dry


def small_set():
    clear(A.data)
    run([A.millrace, "-q", "gen", A.data, "--format", "npz", "--files", "4", "--size", "4096"])
    need_valid()


def start_up_rows(out, theirs, ours, dry):
    best = lambda v, k: min(x[k] for x in v) if v else None
    took, rss = min(x[0] for x in ours), min(x[1] for x in ours)
    other(out, "start-up: a job of one step, start to end", "s", best(theirs, "wall_s"), took, "at most 0.03", took <= 0.03,
          f"best of {len(theirs)} / {len(ours)}; dry run {dry:.3f} s; CPU {A.dlio_start_cpu_s:.3f} / {A.millrace_start_cpu_s:.3f} s")
    other(out, "start-up: peak resident memory", "MB", (best(theirs, "rss_bytes") or 0) / 1e6 or None, rss / 1e6, "at most 64", rss <= 64e6)


def memory(out):
    for r in out.rows:
        if r.get("millrace_rss_bytes") and r["workers"] == 2:
            extra = (r["millrace_rss_bytes"] - r["millrace_slab_bytes"]) / 1e6
            other(out, f"peak memory, {r['workload']}", "MB", r.get("dlio_rss_bytes", 0) / 1e6 or None, r["millrace_rss_bytes"] / 1e6,
                  f"at most 64 + {r['millrace_slab_bytes'] / 1e6:.0f} of slabs", extra <= 64, "DLIO: its largest process")


def generation(out):
    """One process and one thread; bytes of the files over the time of generating (Millrace: of the whole command)."""
    for name, fmt, files, per_file, size, batch, _, _ in WORKLOADS:
        n = max(1, int(files * A.scale))
        if fmt == "indexed_binary":
            n = max(2, n // 64)  # DLIO writes these at some 10 MB/s (one alone, faster, in another way)
        elif size > 100 * MIB:
            n = max(1, n // 7)
        clear(A.data)
        A.batch = batch
        workload(name, fmt, n, per_file, size, batch, 0)
        theirs = rss = None
        if A.dlio:
            r = dlio("P", "workflow.generate_data=True", "workflow.train=False", "dataset.generation_buffer_size=4194304")
            at = {}
            for line in r["text"].splitlines():
                for what in ("Starting data generation", "Generation done"):
                    if what in line:
                        at[what] = stamp(next(w for w in line.split() if w[:2] == "20" and "T" in w))
            theirs = data_bytes(A.data, fmt) / (at["Generation done"] - at["Starting data generation"]) / 1e6
            rss = r["rss_bytes"]
        clear(A.data)
        side = int(size ** 0.5)
        dims = ["--dims", f"{side}x{side}"] if fmt == "jpeg" else ["--size", str(side * side)]
        wall, mine, _, _ = run([A.millrace, "-q", "gen", A.data, "--format", fmt, "--files", str(n), "--samples-per-file", str(per_file), *dims, "--threads", "1"])
        note = f"{n} files; peak memory {(rss or 0) / 1e6:.0f} / {mine / 1e6:.0f} MB"
        other(out, f"generate {name}, one thread", "MB/s", theirs, data_bytes(A.data, fmt) / wall / 1e6, note=note)
    clear(A.data)


def checkpoint(out):
    """One blob, written three times, not synchronised by either; best of the three."""
    size = int(min(1.0, 4 * A.scale) * GIB) // MIB * MIB
    folder = os.path.join(A.home, "checkpoints")
    A.batch = 4
    small_set()
    common = {"workflow": {"checkpoint": True}, "train": {"epochs": 3}}
    theirs = rss = None
    clear(folder)
    if A.dlio:
        workload("checkpoint", "npz", 4, 1, 4096, 4, 0, checkpoint={"checkpoint_folder": folder, "checkpoint_after_epoch": 1,
                 "epochs_between_checkpoints": 1, "model_size": size, "layer_parameters": []}, **common)
        r = dlio("P")
        rss = r["rss_bytes"]
        with open(os.path.join(r["out"], "per_epoch_stats.json")) as f:
            stats = json.load(f)
        took = [stamp(c["end"]) - stamp(c["start"]) for e in stats.values() for k, c in e.items() if k.startswith("ckpt")]
        wrote = [e.stat().st_size for e in os.scandir(folder)]
        if len(wrote) != 3 or min(wrote) < size:
            raise Failed(f"DLIO wrote {len(wrote)} checkpoints of {wrote} bytes")
        theirs = size / GIB / min(took)
    clear(folder)
    path = workload("checkpoint", "npz", 4, 1, 4096, 4, 0)
    done = os.path.join(A.home, "out-millrace")
    _, mine, _, _ = run([A.millrace, "-q", "run", path, "workflow.train=false", "workflow.checkpoint=true", "checkpoint.num_checkpoints_write=3",
                      "checkpoint.num_checkpoints_read=3", f"model.model_size_bytes={size}", "checkpoint.fsync=false",
                      "checkpoint.time_between_checkpoints=0", "--checkpoint-folder", folder, "--out", done])
    with open(os.path.join(done, "checkpoints.csv")) as f:
        rows = list(csv.DictReader(f))
    best = lambda kind: size / GIB / min(int(x["duration_ns"]) / 1e9 for x in rows if x["kind"] == kind)
    clear(folder)
    clear(A.data)
    note = f"{size / GIB:.2f} GiB; peak memory {(rss or 0) / 1e6:.0f} / {mine / 1e6:.0f} MB"
    other(out, "checkpoint, save", "GiB/s", theirs, best("save"), note=note)
    other(out, "checkpoint, load", "GiB/s", None, best("load"), note="DLIO 2.0.0 cannot load one; every byte is verified")


def arguments():
    p = argparse.ArgumentParser(prog="bench/run_dlio")
    p.add_argument("--build", default="build")
    p.add_argument("--dlio", default="", help="environment with DLIO in it; empty: there is none")
    p.add_argument("--dir", default="")
    p.add_argument("--scale", type=float, default=1.0)
    p.add_argument("--only", default="")
    p.add_argument("--rounds", type=int, default=3)
    a = p.parse_args()
    if not 0 < a.scale <= 1 or a.rounds < 1:
        p.error("--scale is above 0 and at most 1, --rounds at least 1")
    a.build = os.path.abspath(a.build)
    a.home = os.path.join(a.build, "dlio")
    a.data = os.path.join(os.path.abspath(a.dir) if a.dir else a.home, "data")
    a.dlio = os.path.abspath(a.dlio) if a.dlio else ""
    a.millrace = os.path.join(a.build, "bin", "millrace")
    a.floor = os.path.join(a.build, "bench", "bench_floor")
    os.makedirs(a.home, exist_ok=True)
    return a


def cpu_name():
    with open("/proc/cpuinfo") as f:
        return next((x.split(":", 1)[1].strip() for x in f if x.startswith("model name")), "unknown CPU")


def versions():
    v = {"millrace": run([A.millrace, "--version"])[2].split("\n")[0], "python": platform.python_version()}
    if A.dlio:
        import importlib.metadata
        for m in ("dlio-benchmark", "numpy", "h5py", "pillow", "mpi4py"):
            v[m] = importlib.metadata.version(m)
        v["torch"] = run([os.path.join(A.dlio, "bin", "python3"), "-c", "import torch; print(torch.__version__)"])[2].strip()
    return v


def main():
    out = Output()
    v = versions()
    load = os.getloadavg()[0]
    out.line("# DLIO, Millrace and the floor on the same files\n")
    out.line(f"{datetime.datetime.utcnow():%Y-%m-%d %H:%M} UTC, {cpu_name()}, {os.cpu_count()} CPUs, Linux {platform.release()}, scale {A.scale:g}, {A.rounds} rounds, load average at start {load:.2f}.")
    out.line("Samples/s by the wall clock of the best epoch but a run's first; warm page cache, no compute. " + ", ".join(f"{k} {x}" for k, x in v.items()) + "\n")
    if not A.dlio:
        out.line("DLIO could not be installed here: its columns are empty.\n")
    started = start_up()
    if any(wanted(w[0]) for w in WORKLOADS):
        reading(out)
    out.line("\n| what | unit | DLIO | millrace | budget | | |\n|---|---|---|---|---|---|---|")
    memory(out)
    if wanted("start-up"):
        start_up_rows(out, *started)
    for name, fn in (("generate", generation), ("checkpoint", checkpoint)):
        if wanted(name):
            say(name)
            try:
                fn(out)
            except Failed as e:
                other(out, name, "", None, None, "runs", False, str(e))
    missed = sum(not r["met"] for r in out.rows + out.others)
    for r in out.rows:
        for side, why in r.get("failed", {}).items():
            out.line(f"\n{r['workload']}, {r['workers']} workers: {side} has no figure: {why}")
    out.line(f"\n{len(out.rows) + len(out.others)} rows, {missed} budgets missed.")
    with open(os.path.join(A.build, "dlio.json"), "w") as f:
        json.dump({"schema": "millrace.dlio-comparison/1", "scale": A.scale, "rounds": A.rounds, "load_average": load, "versions": v,
                   "cpu": cpu_name(), "reading": out.rows, "others": out.others}, f, indent=1)
    return 3 if missed else 0


A = arguments()
if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as e:
        sys.exit(f"bench: {e}")
