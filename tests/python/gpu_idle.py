"""Idle time of a real GPU, which `make test` has not. Run it by hand on a machine with one:

    MILLRACE=build/bin/millrace python3 tests/python/gpu_idle.py

A loop whose waits and GPU work have known lengths is traced; the spans accelerator/idle must say what arithmetic says: wait minus the work that was still to
be done when it began. Also: the loop takes as long with the tracer as without (nothing synchronises), and NVML's utilisation is there. Prints the figures and
ends with status 0 if they agree within 10 % (5 ms for each step at most)."""
import csv
import json
import os
import subprocess
import sys
import tempfile

SCRIPT = """
import json, sys, time, torch
from torch.utils.data import DataLoader
wait_s, work_ms, workers = float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 30
    def __getitem__(self, i):
        time.sleep(wait_s)
        return torch.zeros(16)
a = torch.randn(4096, 4096, device="cuda")
def work(n):
    for _ in range(n):
        a @ a
work(50)
torch.cuda.synchronize()
t = time.perf_counter()
work(200)
torch.cuda.synchronize()
rounds = max(1, int(work_ms / ((time.perf_counter() - t) * 1000 / 200)))
marks, waits, last = [], [], time.perf_counter()
begin = last
for batch in DataLoader(Slow(), batch_size=1, num_workers=workers, pin_memory=bool(workers)):
    waits.append(time.perf_counter() - last)
    first, second = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    batch.cuda(non_blocking=True)
    first.record()
    work(rounds)
    second.record()
    marks.append((first, second))
    last = time.perf_counter()
took = time.perf_counter() - begin
torch.cuda.synchronize()
print(json.dumps({"took": took, "waits": waits, "work": [f.elapsed_time(s) / 1000 for f, s in marks]}))
"""


def main():
    millrace = os.environ.get("MILLRACE", "millrace")
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        script, trace = os.path.join(folder, "s.py"), os.path.join(folder, "t.mrt")
        with open(script, "w") as f:
            f.write(SCRIPT)
        for wait_s, work_ms, workers in ((0.06, 40, 0), (0.06, 5, 0), (0.02, 60, 0), (0.06, 20, 1)):
            args = [sys.executable, script, str(wait_s), str(work_ms), str(workers)]
            bare = json.loads(subprocess.run(args, check=True, capture_output=True, text=True).stdout)
            told = json.loads(subprocess.run([millrace, "trace", "-q", "-o", trace, "--", *args], check=True, stdout=subprocess.PIPE, text=True).stdout)
            subprocess.run([millrace, "export", "-f", "csv", "-o", trace + ".csv", trace], check=True)
            idle, busy = {}, []
            with open(trace + ".csv", newline="") as f:
                for row in csv.DictReader(f):
                    if row["category"] == "accelerator" and row["name"] == "idle":
                        idle[json.loads(row["args"])["batch"]] = int(row["dur_ns"]) / 1e9
                    elif row["category"] == "accelerator":
                        busy.append(row["args"])
            # the wait for batch n covers what was left of the work for batch n - 1
            wanted = {n: max(0, told["waits"][n] - told["work"][n - 1]) for n in range(1, len(told["waits"]))}
            missing = [n for n in wanted if n not in idle]
            have, want = sum(idle.get(n, 0) for n in wanted), sum(wanted.values())
            ok = len(missing) <= 2 and abs(have - want) <= max(0.1 * want, 0.005 * len(wanted))
            bad += not ok
            print("wait %.0f ms, work %.0f ms, %d workers: idle %.3f s, wanted %.3f s, %d of %d steps; loop %.3f s, untraced %.3f s; utilisation %s: %s" % (
                wait_s * 1000, work_ms, workers, have, want, len(idle), len(told["waits"]), told["took"], bare["took"], busy[:3], "ok" if ok else "FAIL"))
    return bad != 0


sys.exit(main())
