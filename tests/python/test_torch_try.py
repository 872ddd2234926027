"""`millrace try` on real PyTorch programs: the change is injected, both sides load the same rows in the same order, the run ends behind its window, nothing
is left behind. MR_TEST_FULL=1 adds verdicts, programs that cannot be tried, and kills.

test-label: once (it starts PyTorch three times)"""
import glob
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

MILLRACE, BUILD = os.environ["MILLRACE"], os.environ["MR_BINARY_DIR"]
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tried_torch.py")
FULL = os.environ.get("MR_TEST_FULL")
if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode:
    print("SKIP: there is no PyTorch")
    sys.exit(77)


def trace(folder, *words, **more):
    path = os.path.join(folder, "-".join(words[:2]) + ".mrt")
    subprocess.run([MILLRACE, "trace", "-q", "-o", path, "--", sys.executable, SCRIPT, *words], check=True, cwd=folder, **more)
    return path


def millrace_try(*words, **more):
    return subprocess.run([MILLRACE, "try", "-q", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, **more)


def injection_changes_nothing_but_the_workers(folder):
    log, out = os.path.join(folder, "rows"), os.path.join(folder, "tried")
    sockets = os.path.join(folder, "tmp")  # of workers, which are ended in the window
    os.mkdir(sockets)
    env = dict(os.environ, TMPDIR=sockets)
    path = trace(folder, "starved", "30", log, env=env)
    done = millrace_try("--apply", "-n", path)
    assert done.returncode == 0 and "-        num_workers=1," in done.stdout and "+        num_workers=" in done.stdout, done
    found = subprocess.run([MILLRACE, "report", path], check=True, stdout=subprocess.PIPE, universal_newlines=True).stdout
    assert "\n       millrace try TH2 %s " % path in found, found
    open(log, "w").close()
    done = millrace_try("--steps", "5:20", "--repeat", "1", "--json", "--out", out, path, env=env)
    assert done.returncode == 6, done  # one run of each side
    told = json.loads(done.stdout)
    assert told["verdict"] == "not decided" and "num_workers 1 -> " in told["injected"] and told["steps"] == [5, 20], told
    runs = told["runs"]
    assert [r["side"] for r in runs] == ["a", "b"] and runs[0]["wait_s"] > 2 * runs[1]["wait_s"], runs
    rows = {}
    for line in open(log):
        process, step, values = line.split(" ", 2)
        rows.setdefault(process, []).append((int(step), values))
    a, b = rows.values()
    assert a == b and 20 <= len(a) <= 22, (a, b)  # the window, and the step behind it
    assert not glob.glob(os.path.join(sockets, "*")), os.listdir(sockets)
    assert sorted(os.listdir(out)) == ["a1.log", "a1.mrt", "b1.log", "b1.mrt"], os.listdir(out)
    found = json.loads(subprocess.run([MILLRACE, "report", "--json", os.path.join(out, "b1.mrt")], check=True, stdout=subprocess.PIPE).stdout)
    assert found["facts"]["workers"] == told["loaders"][0]["set"]["num_workers"], found["facts"]


def verdicts_are_those_of_the_programs(folder):
    done = millrace_try("--json", trace(folder, "starved", "130"))
    told = json.loads(done.stdout)
    assert done.returncode == 0 and told["verdict"] in ("confirmed", "smaller than predicted"), done
    done = millrace_try("--json", "TH2", trace(folder, "healthy", "130"))
    told = json.loads(done.stdout) if done.stdout else {}
    assert told.get("verdict") in ("no gain", "not decided") or "there is no finding" in done.stderr, done


def what_cannot_be_tried_is_said(folder):
    path = trace(folder, "starved", "30")
    for words, status, text in (
        (("--steps", "5:90", path), 6, "ended before step 90"),
        (("--steps", "5:25", "--limit", "300ms", path), 6, "did not come to step 25"),
        (("--steps", "5", path), 2, "bad value '5' for '--steps'"),
        (("XX9", path), 2, "there is no finding 'XX9'"),
    ):
        done = millrace_try(*words)
        assert done.returncode == status and text in done.stderr, (words, done)
    done = millrace_try(trace(folder, "iterable", "30"))
    assert done.returncode == 2 and "does not divide itself among workers" in done.stderr, done
    os.rename(SCRIPT_COPY, SCRIPT_COPY + ".gone")
    done = millrace_try(COPY_TRACE)
    assert done.returncode == 6 and "can't open file" in done.stderr, done


def saves_go_to_folders_that_are_removed(folder):
    saved = os.path.join(folder, "saved")
    os.mkdir(saved)
    path = trace(folder, "saves", "40", saved)
    before = {name: os.stat(os.path.join(saved, name)).st_mtime_ns for name in os.listdir(saved)}
    assert len(before) == 4, before
    for words in (("--keep-saves", "--steps", "4:20"), ("--steps", "4:30")):
        done = millrace_try("--set", "saver=ours", "--json", "--repeat", "1", *words, path)
        told = json.loads(done.stdout)
        assert done.returncode == 6 and told["injected"] == "saver torch.save -> millrace.checkpoint.Saver", done
        if "--keep-saves" in words:
            assert before["last.pt"] != os.stat(os.path.join(saved, "last.pt")).st_mtime_ns
            before = {name: os.stat(os.path.join(saved, name)).st_mtime_ns for name in os.listdir(saved)}
    after = {name: os.stat(os.path.join(saved, name)).st_mtime_ns for name in os.listdir(saved)}
    assert before == after, (before, after)


def killed_trial_leaves_nothing(folder):
    before = set(glob.glob(os.path.join(folder, "millrace-*")))
    path = trace(folder, "starved", "400")
    for number in (signal.SIGKILL, signal.SIGINT, signal.SIGTERM):
        trial = subprocess.Popen([MILLRACE, "try", "-q", path], env=dict(os.environ, TMPDIR=folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        mine = "MILLRACE_TRY=" + folder
        while not programs(mine):
            time.sleep(0.02)
        time.sleep(1)
        trial.send_signal(number)
        assert trial.wait(30) in (-signal.SIGKILL, 130, 143), trial.returncode
        end = time.monotonic() + 20
        while time.monotonic() < end and (programs(mine) or set(glob.glob(os.path.join(folder, "millrace-*"))) - before):
            time.sleep(0.05)
        assert not programs(mine) and set(glob.glob(os.path.join(folder, "millrace-*"))) == before, number


def programs(variable):
    """Processes that have this in their environment."""
    found = []
    for path in glob.glob("/proc/[0-9]*/environ"):
        try:
            with open(path, "rb") as f:
                if variable.encode() in f.read():
                    found.append(path)
        except OSError:
            pass
    return found


with tempfile.TemporaryDirectory(dir=BUILD) as work:
    injection_changes_nothing_but_the_workers(work)
    if FULL:
        SCRIPT_COPY = os.path.join(work, "copy_torch.py")
        with open(SCRIPT) as source, open(SCRIPT_COPY, "w") as copy:
            copy.write(source.read())
        COPY_TRACE = os.path.join(work, "copy.mrt")
        subprocess.run([MILLRACE, "trace", "-q", "-o", COPY_TRACE, "--", sys.executable, SCRIPT_COPY, "starved", "30"], check=True)
        what_cannot_be_tried_is_said(work)
        saves_go_to_folders_that_are_removed(work)
        killed_trial_leaves_nothing(work)
        verdicts_are_those_of_the_programs(work)
