"""Programs that use our own loaders, under `millrace trace`: the loader's threads tell who made which batch, so that the report has steps, the seconds
waited, why, and the right class, without a framework. Storage is shaped, so no disk is asked; the script's own clock is what the report is held to.

Runs alone (test-label: timing): what a batch was held up by is a matter of time."""
import json
import os
import subprocess
import sys
import tempfile

import printed  # beside this file

MILLRACE, BUILD = os.environ["MILLRACE"], os.environ["MR_BINARY_DIR"]
SCRIPT = '''
import json, sys, time
from millrace.numpy import Loader
data, batch, threads, ahead, store, compute = sys.argv[1:]
loader = Loader(data, int(batch), threads=int(threads), lookahead=int(ahead), store=store, shuffle=True)
checks = Loader(data, int(batch), threads=1, lookahead=1)  # a second one uses the same numbers of batches
waited, steps = 0.0, 0
for epoch in range(2):
    batches = iter(loader)
    while True:
        begin = time.perf_counter()
        got = next(batches, None)
        if got is None:
            break
        waited += time.perf_counter() - begin
        steps += 1
        time.sleep(float(compute))
for got, _ in zip(checks, range(4)):
    pass
print(json.dumps({"waited_s": waited, "steps": steps}))
'''
# data, batch, threads, ahead, store, compute: class, cause, first finding
CASES = [
    ("large", 2, 2, 3, "throttle(bandwidth=20MB):posix", 0.01, "input-bound", "storage", {"TH1", "TH4"}),
    ("large", 2, 1, 3, "throttle(latency=20ms):posix", 0.01, "input-bound", "storage", {"TH1"}),
    ("large", 2, 2, 3, "throttle(bandwidth=400MB):posix", 0.05, "healthy", None, None),
    # all share one rate, which nothing in the trace shows: memory helps for sure, more readers (TH1) would be a trial
    ("small", 64, 2, 3, "throttle(bandwidth=2MB):posix", 0.01, "input-bound", "storage", {"CA2", "CA3", "TH1", "TH4"}),
]


def generate(folder, name, files, samples, size):
    with open(os.path.join(folder, name + ".yaml"), "w") as f:
        f.write("workflow: {train: true}\ndataset: {format: indexed_binary, num_files_train: %d, num_samples_per_file: %d, record_length_bytes: %d}\n"
                % (files, samples, size))
    subprocess.run([MILLRACE, "-q", "gen", os.path.join(folder, name), "--workload", os.path.join(folder, name + ".yaml")], check=True, stdout=subprocess.DEVNULL)


def report(folder, data, batch, threads, ahead, store, compute):
    trace, script = os.path.join(folder, "t.mrt"), os.path.join(folder, "train.py")
    with open(script, "w") as f:
        f.write(SCRIPT)
    command = [sys.executable, script, os.path.join(folder, data), str(batch), str(threads), str(ahead), store, str(compute)]
    done = subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, "--", *command], check=True, stdout=subprocess.PIPE)
    told = json.loads(done.stdout.decode().strip().splitlines()[-1])
    found = json.loads(subprocess.run([MILLRACE, "report", "--json", trace], check=True, stdout=subprocess.PIPE).stdout)
    printed.check(found, command)
    return told, found


def check(folder, data, batch, threads, ahead, store, compute, verdict, cause, first):
    told, found = report(folder, data, batch, threads, ahead, store, compute)
    what = (data, store, told, found["verdict"], found["stall"], [f["id"] for f in found["findings"]])
    train = [s for s in found["steps"] if s.get("phase", "train") == "train"]
    assert len(train) == told["steps"], (what, len(train), len(found["steps"]))
    assert abs(found["verdict"]["stall_s"] - told["waited_s"]) <= max(0.1 * told["waited_s"], 0.03), what
    assert found["verdict"]["class"] == verdict, what
    assert found["facts"]["workers"] == threads, found["facts"]
    assert found["stall"]["unknown_s"] <= 0.05 * max(told["waited_s"], 0.1), what
    if cause:
        assert found["verdict"]["cause"] == cause and found["findings"][0]["id"] in first, what
        assert found["findings"][0]["id"] != "TH1" or "Worth a trial" in found["verdict"]["lines"][2], what
    print("%s, %s: %s, %s; waited %.2f s, by the report %.2f s" % (data, store, found["verdict"]["class"], found["verdict"]["cause"], told["waited_s"],
                                                                  found["verdict"]["stall_s"]))


def main():
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        generate(folder, "large", 4, 8, 400000)
        generate(folder, "small", 2, 512, 1000)
        for case in CASES:
            for left in (2, 1, 0):
                try:
                    check(folder, *case)
                    break
                except AssertionError as wrong:
                    if not left:
                        raise
                    print("again, because:", str(wrong)[:500])


main()
