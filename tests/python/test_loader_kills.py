"""Two ranks that share tiers and an SSD folder, one or both killed by SIGKILL at random moments, 200 times: a surviving
rank ends by itself, and the job that comes after has every sample of every epoch, right, once. No process stays behind,
and nothing in /dev/shm. MR_KILLS=N and MR_KILL_SEED=N change number and moments.
test-label: full"""

import collections
import hashlib
import os
import random
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import folder, gen, run  # noqa: E402

from millrace.numpy import Loader  # noqa: E402

N, EPOCHS, PATIENCE_S = 128, 3, 100  # ranks that have not met end after a minute


def rank_main(path, rank, out, pause):
    """A rank of the job: writes every sample's number and hash."""
    here = os.path.dirname(path)
    tiers = f"ram=200KiB,ssd={os.path.join(os.path.dirname(here), 'cache')}:2MiB"
    key = os.path.join(os.path.dirname(here), "key")
    with open(out, "w", buffering=1) as f:
        loader = Loader(path, 4, shuffle=True, seed=3, rank=rank, world=2, tiers=tiers, key_file=key, epochs=EPOCHS)
        for _ in range(EPOCHS):
            for batch in loader:
                for number, row in zip(batch.ids, batch.data):
                    f.write(f"{number} {hashlib.md5(row.tobytes()).hexdigest()}\n")
                time.sleep(pause)


def start(path, pause):
    """Both ranks, and the files of what they read."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = str(s.getsockname()[1])
    outs, ranks = [os.path.join(folder, f"rank-{r}") for r in (0, 1)], []
    for r, out in enumerate(outs):
        if os.path.exists(out):
            os.unlink(out)
        more = dict(RANK=str(r), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port, OMP_NUM_THREADS="1", TMPDIR=folder)
        words = [sys.executable, os.path.abspath(__file__), "rank", path, str(r), out, str(pause)]
        ranks.append(subprocess.Popen(words, env=dict(os.environ, **more), stderr=subprocess.DEVNULL))
    return ranks, outs


def read(outs):
    """How often each sample came, and its hash, which is the same every time."""
    counts, hashes = collections.Counter(), {}
    for out in outs:
        with open(out) as f:
            for line in f:
                if not line.endswith("\n"):
                    break  # it was killed just then
                number, one = line.split()
                counts[number] += 1
                assert hashes.setdefault(number, one) == one, f"sample {number} has two contents"
    return counts, hashes


def in_use(name):
    """Whether a process, of other jobs too, has a file of that name open or mapped."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/maps") as f:
                if name in f.read():
                    return True
            if any(name in os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")):
                return True
        except OSError:
            continue
    return False


def ours():
    """Names of this user's in /dev/shm."""
    names = [name for name in os.listdir("/dev/shm") if name.startswith("millrace")]
    return {name for name in names if os.lstat(os.path.join("/dev/shm", name)).st_uid == os.getuid()}


def processes():
    """Those with this test's folder in their command line, but for this one."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as f:
                if folder in f.read() and int(pid) != os.getpid():
                    found.append(pid)
        except OSError:
            continue
    return found


def under_way(ranks, outs):
    """Both have a sample, or one has ended."""
    return any(p.poll() is not None for p in ranks) or all(os.path.exists(o) and os.path.getsize(o) for o in outs)


def killed_ranks_leave_right_samples():
    seed, kills = int(os.environ.get("MR_KILL_SEED", time.time())), int(os.environ.get("MR_KILLS", "200"))
    print(f"seed {seed}, {kills} kills")
    chance = random.Random(seed)
    path = gen("kills", "--format", "npz", "--files", "16", "--samples-per-file", "8", "--size", "16KiB")
    with open(os.open(os.path.join(folder, "key"), os.O_CREAT | os.O_WRONLY, 0o600), "wb") as f:
        f.write(os.urandom(32))
    before, want = ours(), None
    for k in range(kills + 1):
        if k % 10 == 0:
            ranks, outs = start(path, 0)
            assert [p.wait(PATIENCE_S) for p in ranks] == [0, 0], f"the job after {k} kills"
            counts, hashes = read(outs)
            want = want or hashes
            assert hashes == want and len(counts) == N and set(counts.values()) == {EPOCHS}, f"after {k} kills"
        ranks, outs = start(path, 0.01)
        until = time.time() + 20
        while not under_way(ranks, outs) and time.time() < until:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.4))
        for rank in chance.choice([[0], [1], [0, 1]]):
            ranks[rank].send_signal(signal.SIGKILL)
        for p in ranks:  # TimeoutExpired: a survivor hangs
            p.wait(PATIENCE_S)
        for number, one in read(outs)[1].items():
            assert want[number] == one, f"kill {k}: sample {number} is wrong"
    assert not processes(), processes()
    left = {name for name in ours() - before if not in_use(name)}
    assert not left, left


if len(sys.argv) > 1 and sys.argv[1] == "rank":
    rank_main(sys.argv[2], int(sys.argv[3]), sys.argv[4], float(sys.argv[5]))
    os._exit(0)
run([killed_ranks_leave_right_samples])
