"""Real PyTorch loops that have no data loader: `millrace trace` and `millrace report` find the seconds waited that the script's own clock has, the class of
the verdict, the cause and the first finding, or say that they cannot know. MR_TEST_FULL=1 tries every way. MR_TEST_PYTHONS may name interpreters that have
PyTorch.

What a loop waits for is a matter of time, so this test runs alone (test-label: timing), and a script whose answer is not the wanted one is run again, twice
at most."""
import json
import os
import subprocess
import sys
import tempfile

import printed  # beside this file

MILLRACE, BUILD = os.environ["MILLRACE"], os.environ["MR_BINARY_DIR"]
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hand_torch.py")
FULL = os.environ.get("MR_TEST_FULL")

CPU = ("CPU1", "TH2")  # as many workers as CPUs, or fewer
# way, steps, work, compute: class, causes of which one is the largest, first findings, workers
CASES = [
    ("direct", 80, 0, 0.02, "input-bound", {"storage"}, ("PF1",), 0),
    ("decode", 30, 0, 0.02, "input-bound", {"decode"}, ("PF1",), 0),
    ("bare", 30, 0.02, 0.02, "input-bound", {"decode"}, ("PF1",), 0),
    ("imap", 30, 0.06, 0.01, "input-bound", {"decode"}, CPU, 2),
    ("memory", 30, 0, 0.02, "healthy", None, None, None),
    ("hidden", 30, 0.06, 0.01, "input-bound", {"decode", "unknown"}, None, None),
    ("sleep", 30, 0.06, 0.01, "incomplete", None, None, None),
]
MORE = [
    ("numpy", 30, 0, 0.02, "input-bound", {"storage", "page_cache"}, ("PF1",), 0),  # how much comes at memory speed is the disk's business
    ("threads", 30, 0.06, 0.01, "input-bound", {"decode"}, CPU, 2),
    ("loop", 30, 0.02, 0.01, "input-bound", {"decode", "not_started"}, CPU + ("PF1",), 2),
    ("map", 30, 0.02, 0.01, "input-bound", {"decode", "not_started"}, CPU + ("PF1",), 2),
    ("processes", 30, 0.06, 0.01, "input-bound", {"decode"}, CPU, 2),
    ("completed", 30, 0.02, 0.01, "input-bound", {"decode", "not_started"}, CPU + ("PF1",), 2),
    ("queue", 30, 0.06, 0.01, "input-bound", {"decode"}, None, 1),
    ("thread", 30, 0.06, 0.01, "input-bound", {"decode"}, None, 1),
    ("simple", 30, 0.06, 0.01, "input-bound", {"decode", "unknown"}, None, None),
    ("join", 30, 0.06, 0.01, "input-bound", {"decode", "unknown"}, None, None),
    ("accumulate", 32, 0, 0.02, "input-bound", {"storage"}, ("PF1",), 0),
    ("two", 30, 0, 0.02, "input-bound", {"storage"}, ("PF1",), 0),
    ("imap", 30, 0.002, 0.05, "healthy", None, None, 2),
]


def can(python, modules):
    return subprocess.run([python, "-c", "import " + modules], capture_output=True).returncode == 0


def takes_direct(folder):
    path = os.path.join(folder, "direct")
    with open(path, "wb") as f:
        f.write(bytes(4096))
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
        return True
    except OSError:
        return False


def near(a, b, share, least):
    return abs(a - b) <= max(share * max(a, b), least)


def check(python, folder, way, steps, work, compute, verdict, causes, first, workers):
    trace = os.path.join(folder, "t.mrt")
    command = [python, SCRIPT, way, str(steps), str(work), str(compute), folder]
    done = subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, "--", *command], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    told = json.loads(done.stdout.decode().strip().splitlines()[-1])
    found = json.loads(subprocess.run([MILLRACE, "report", "--json", trace], check=True, stdout=subprocess.PIPE).stdout)
    printed.check(found, command)
    findings, facts = [f["id"] for f in found["findings"]], found["facts"]
    what = (way, told, found["verdict"], found["stall"], findings, facts["workers"])
    assert found["verdict"]["class"] == verdict, what
    assert len(found["steps"]) == told["steps"], (what, len(found["steps"]))
    assert facts["framework"] == "pytorch", facts
    if workers is not None:
        assert facts["workers"] == workers, what
    if verdict != "incomplete":
        assert near(found["verdict"]["stall_s"], told["waited_s"], 0.1, 0.05), what
        assert near(found["training_s"], told["all_s"], 0.1, 0.1), what
    if causes and "decode" in causes and os.getloadavg()[0] > (os.cpu_count() or 1):
        causes = causes | {"worker", "cpu_wait"}  # whoever decodes has to wait for a CPU
        first = first and set(first) | {"CPU2"}
    if causes:
        assert found["verdict"]["cause"] in causes, what
    if first:
        assert findings[0] in first and found["findings"][0]["saves_s"] > 0, what
    print("%s: %s, %s, %s; waited %.2f s, by the report %.2f s" % (way, verdict, found["verdict"]["cause"], findings[:1], told["waited_s"],
                                                                  found["verdict"]["stall_s"]))


def patiently(*case):
    for left in (2, 1, 0):
        try:
            check(*case)
            return
        except AssertionError as wrong:
            if not left:
                raise
            print("again, because:", str(wrong)[:400])


def main():
    pythons = [p for p in [sys.executable] + os.environ.get("MR_TEST_PYTHONS", "").split() if can(p, "torch, numpy")]
    if not pythons:
        print("SKIP: there is no PyTorch")
        sys.exit(77)
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        direct = takes_direct(folder)
        for python in pythons:
            for case in CASES + (MORE if FULL else []):
                if case[0] in ("decode", "bare") and not can(python, "PIL"):
                    print("%s: left out, there is no Pillow" % case[0])
                elif case[0] in ("direct", "accumulate", "two") and not direct:
                    print("%s: left out, this file system has no O_DIRECT" % case[0])
                else:
                    patiently(python, folder, *case)


main()
