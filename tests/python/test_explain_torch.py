"""Real PyTorch scripts that are starved in known ways: `millrace trace` and `millrace report` find the seconds waited that the script's own clock has, the
class of the verdict and the cause. MR_TEST_FULL=1 tries every number of workers. MR_TEST_PYTHONS may name interpreters that have PyTorch.

What a worker was held up by is a matter of time: on CPUs that others use it is a CPU. So this test runs alone (test-label: timing), and a script whose
answer is not the wanted one is run again, twice at most."""
import json
import os
import subprocess
import sys
import tempfile

import printed  # beside this file

MILLRACE, BUILD = os.environ["MILLRACE"], os.environ["MR_BINARY_DIR"]
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "starved_torch.py")
FULL = os.environ.get("MR_TEST_FULL")

# way, workers, prefetch, steps, compute: class, causes of which one is the largest (None: any)
CASES = [
    ("storage", 1, 2, 30, 0.002, "input-bound", {"storage"}),
    ("decode", 1, 2, 30, 0.01, "input-bound", {"decode"}),
    ("late", 2, 1, 45, 0.05, "input-bound", {"not_started"}),
    ("none", 2, 2, 20, 0.25, "healthy", None),  # starting the workers is a wait, too: less than a tenth
    ("save", 0, 2, 30, 0.02, "checkpoint-bound", None),
]
MORE = [
    ("storage", 0, 2, 30, 0.002, "input-bound", {"storage"}),
    ("storage", 2, 2, 30, 0.002, "input-bound", {"storage"}),
    ("decode", 0, 2, 30, 0.01, "input-bound", {"decode"}),
    ("decode", 2, 2, 40, 0.002, "input-bound", {"decode", "worker"}),  # two busy workers and the loop may share two CPUs
    ("none", 0, 2, 30, 0.1, "healthy", None),
    ("none", 1, 2, 30, 0.1, "healthy", None),
    ("save", 1, 2, 30, 0.02, "checkpoint-bound", None),
]


# loops of another style: style, work for a row, compute: class, causes
STYLES = [("thread", 0.01, 0.005, "input-bound", {"decode"})]
MORE_STYLES = [
    ("thread", 0.001, 0.15, "healthy", None),
    ("ahead", 0.01, 0.005, "input-bound", {"decode"}),
    ("persistent", 0.01, 0.005, "input-bound", {"decode"}),
    ("accumulate", 0.01, 0.005, "input-bound", {"decode"}),
    ("accumulate", 0.001, 0.25, "healthy", None),
    ("iterable", 0.01, 0.002, "input-bound", {"decode"}),
]


def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0


def takes_direct(path):
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
        return True
    except OSError:
        return False


def report(python, folder, way, workers, prefetch, steps, compute):
    trace = os.path.join(folder, "t.mrt")
    command = [python, SCRIPT, way, str(workers), str(prefetch), str(steps), str(compute), folder]
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    done = subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, "--", *command], check=True, stdout=subprocess.PIPE, env=env)
    told = json.loads(done.stdout.decode().strip().splitlines()[-1])
    found = json.loads(subprocess.run([MILLRACE, "report", "--json", trace], check=True, stdout=subprocess.PIPE).stdout)
    printed.check(found, command)
    text = subprocess.run([MILLRACE, "report", trace], check=True, stdout=subprocess.PIPE).stdout.decode()
    against = subprocess.run([MILLRACE, "compare", trace, trace], check=True, stdout=subprocess.PIPE).stdout.decode()
    assert "same work: yes" in against and "EiB" not in against, against  # what is not known is no figure
    return told, found, text


def near(a, b, share, least):
    return abs(a - b) <= max(share * max(a, b), least)


def check(python, folder, way, workers, prefetch, steps, compute, verdict, causes):
    told, found, text = report(python, folder, way, workers, prefetch, steps, compute)
    what = (way, workers, told, found["verdict"], found["time"], found["stall"])
    stall, time = found["stall"], found["time"]
    assert len(found["steps"]) == steps, (what, len(found["steps"]))
    assert near(found["verdict"]["stall_s"], told["waited_s"], 0.1, 0.05), what
    assert near(time["checkpoint_s"], told["saved_s"], 0.1, 0.05), what
    assert near(found["training_s"], told["all_s"], 0.1, 0.1), what
    assert near(sum(stall.values()), time["data_stall_s"], 0.001, 1e-6), what
    whole = sum(time.values())
    assert near(whole, sum(r["end_s"] - r["start_s"] for r in found["by_rank"]) / len(found["by_rank"]), 0.001, 1e-6), what
    assert found["verdict"]["class"] == verdict, what
    if causes and "decode" in causes and os.getloadavg()[0] > (os.cpu_count() or 1):
        causes = causes | {"worker", "cpu_wait"}  # whoever decodes has to wait for a CPU, and that is what it is
    if causes:
        assert found["verdict"]["cause"] in causes, what
        assert found["findings"] and found["findings"][0]["saves_s"] > 0, what
    assert found["facts"]["framework"] == "pytorch" and found["facts"]["workers"] == workers, found["facts"]
    assert len(found["workers"]) == workers, found["workers"]
    lines = text.splitlines()
    wide = max(len(line) for line in lines if "try: " not in line and "then: " not in line and not line.lstrip().startswith(("NEXT", "millrace")))
    assert len(lines) <= 40 and wide <= 100 and "VERDICT" in lines[2] and text.isascii(), text
    print("%s, %d workers: %s, %s; waited %.2f s, by the report %.2f s" % (way, workers, found["verdict"]["class"], found["verdict"]["cause"],
                                                                        told["waited_s"], found["verdict"]["stall_s"]))


def check_style(python, folder, style, work, compute, verdict, causes):
    trace = os.path.join(folder, "t.mrt")
    script = os.path.join(os.path.dirname(SCRIPT), "styles_torch.py")
    done = subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, "--", python, script, style, str(work), str(compute)], check=True, stdout=subprocess.PIPE)
    told = json.loads(done.stdout.decode().strip().splitlines()[-1])
    found = json.loads(subprocess.run([MILLRACE, "report", "--json", trace], check=True, stdout=subprocess.PIPE).stdout)
    what = (style, told, found["verdict"], found["stall"], [f["id"] for f in found["findings"]])
    assert len(found["steps"]) == told["steps"], (what, len(found["steps"]))
    assert near(found["verdict"]["stall_s"], told["waited_s"], 0.1, 0.06), what
    assert found["verdict"]["class"] == verdict, what
    loaded = os.getloadavg()[0] > (os.cpu_count() or 1)
    if causes:
        assert found["verdict"]["cause"] in causes | ({"cpu_wait"} if loaded else set()), what
        assert found["findings"][0]["id"] in ("TH2", "CPU1") + (("CPU2",) if loaded else ()), what
    print("%s: %s, %s; waited %.2f s, by the report %.2f s" % (style, found["verdict"]["class"], found["verdict"]["cause"], told["waited_s"],
                                                              found["verdict"]["stall_s"]))


def patiently(check, *case):
    for left in (2, 1, 0):
        try:
            check(*case)
            return
        except AssertionError as wrong:
            if not left:
                raise
            print("again, because:", str(wrong)[:300])


def main():
    pythons = [p for p in [sys.executable] + os.environ.get("MR_TEST_PYTHONS", "").split() if has_torch(p)]
    if not pythons:
        print("SKIP: there is no PyTorch")
        sys.exit(77)
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        data = os.path.join(folder, "data")
        with open(data, "wb") as f:
            f.write(os.urandom(1 << 20) * 64)
            os.fsync(f.fileno())
        for case in CASES + (MORE if FULL else []):
            if case[0] == "storage" and not takes_direct(data):
                print("storage: left out, this file system has no O_DIRECT")
                continue
            patiently(check, pythons[0], folder, *case)
        for case in STYLES + (MORE_STYLES if FULL else []):
            patiently(check_style, pythons[0], folder, *case)


main()
