"""The front ends at their ends: loaders made and dropped many times, stopped by an exception, Ctrl-C or a fork, leave no memory, descriptors,
threads or shared memory behind; input that is wrong gives an exception of the right class, and never a wrong array."""
import gc
import os
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import BINARY, folder, gen, plain_pictures, raises, run  # noqa: E402

import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402

import millrace  # noqa: E402
from millrace.numpy import Loader  # noqa: E402

try:
    import torch
    from millrace.torch import DataLoader
except Exception as reason:
    print(f"note: no PyTorch ({reason}): its front end is left out")
    torch = None

SANITIZED = "libasan" in os.environ.get("LD_PRELOAD", "")  # which keeps freed memory for a while
FULL = bool(os.environ.get("MR_TEST_FULL"))
PATH = gen("numbers", "--format", "npz", "--files", "40", "--dims", "40x60", "--dtype", "float32", "--labels", "9")
ROOT = plain_pictures("pictures", "--files", "24", "--dims", "60x80x3", "--subfolders", "3")
MIDDLE = {"size": 20, "train": False, "floats": False}


def held():
    """What this process holds: descriptors, threads, names in shared memory, segments without a name."""
    gc.collect()
    mine = [f for f in os.listdir("/dev/shm") if f.startswith(f"millrace-{os.getpid()}-")]
    with open("/proc/self/maps") as f:
        unnamed = sum("memfd:" in line or "/dev/shm/" in line for line in f)
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), mine, unnamed


def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def makers():
    out = [lambda: Loader(PATH, 8, shuffle=True, threads=2), lambda: Loader(ROOT, 4, threads=2, pictures={"size": 32})]
    if torch is not None:
        out += [lambda: DataLoader(PATH, 8, shuffle=True, num_workers=2), lambda: DataLoader(ROOT, 4, num_workers=2)]
    return out


def nothing_is_left_behind():
    made, failed = (1000, 100) if FULL else (50, 10)
    for make in makers():
        one = make()
        next(iter(one))
        one.close()
        del one
        before, peak = held(), []
        for i in range(made):
            loader = make()
            batches = iter(loader)
            kept = next(batches)
            if i < failed:
                try:
                    for _ in loader:
                        raise KeyError
                except KeyError:
                    pass
            if i % 2:
                loader.close()
            del loader, batches
            if i >= made // 2:
                peak.append(resident())
        del kept
        assert held() == before, (before, held())
        grown = np.median(peak[-made // 8 :]) - np.median(peak[: made // 8])
        assert grown < (8 << 20) or SANITIZED, f"{grown} bytes more in the last eighth"


def exceptions_in_the_middle_of_an_epoch():
    loader = Loader(PATH, 4, shuffle=True, seed=1)
    want = [b.ids.tolist() for b in loader]
    for stop in range(len(want)):
        loader.set_epoch(0)
        try:
            for n, b in enumerate(loader):
                if n == stop:
                    raise KeyError(n)
        except KeyError:
            pass
    loader.set_epoch(0)
    assert [b.ids.tolist() for b in loader] == want


INTERRUPTED = """
import sys
sys.path.insert(0, {python!r})
from millrace.numpy import Loader
loader = Loader({path!r}, 4, threads=2, store="throttle(latency=300ms):posix")
print("waits", flush=True)
try:
    for _ in loader:
        pass
    print("no wait", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def control_c_ends_a_wait():
    path = gen("hangs", "--format", "npz", "--files", "40", "--dims", "4x6")
    program = INTERRUPTED.format(python=os.path.join(BINARY, "python"), path=path)
    p = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert p.stdout.readline() == "waits\n"
    time.sleep(0.7)
    p.send_signal(signal.SIGINT)
    rest = p.communicate(timeout=30)[0]
    assert rest == "interrupted\n" and p.returncode == 0, (rest, p.returncode)


def a_fork_goes_on_by_itself():
    loader = Loader(PATH, 4, threads=2)
    batches = iter(loader)
    next(batches)
    pid = os.fork()
    if pid == 0:
        code = 2
        try:
            next(batches)
        except RuntimeError as e:
            code = 0 if "fork" in str(e) else 1
        try:
            code = code or (0 if len(list(Loader(PATH, 4, threads=2))) == 10 else 4)
            del loader, batches
            gc.collect()
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(list(batches)) == 9


def save(name, picture, **options):
    path = os.path.join(folder, "odd", name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    picture.save(path, **options)
    return path


def only(name):
    """A data set of one class with this file alone."""
    root = os.path.join(folder, "only-" + name)
    os.makedirs(os.path.join(root, "a"), exist_ok=True)
    os.link(os.path.join(folder, "odd", name), os.path.join(root, "a", name))
    return root


def odd_pictures():
    """Three channels come out whatever went in, or an error; EXIF's rotation is left alone."""
    noise = [Image.effect_noise((40, 30), s) for s in (30, 60, 90)]
    colour, exif = Image.merge("RGB", noise), Image.Exif()
    exif[0x0112] = 6
    want = {
        "grey.jpg": save("grey.jpg", noise[0]),
        "cmyk.jpg": save("cmyk.jpg", colour.convert("CMYK"), quality=95),
        "rotated.jpg": save("rotated.jpg", colour, exif=exif, quality=95),
        "grey.png": save("grey.png", noise[1]),
        "alpha.png": save("alpha.png", colour.convert("RGBA")),
        "palette.png": save("palette.png", colour.convert("P")),
        "one-bit.png": save("one-bit.png", noise[0].convert("1")),
    }
    exact = {"size": (30, 40), "train": False, "resize": 30, "floats": False}
    for name, path in want.items():
        (batch,) = Loader(only(name), 1, pictures=exact)
        with Image.open(path) as picture:
            pillow = np.asarray(picture.convert("RGB"))
        assert batch.data.shape == (1, 30, 40, 3), (name, batch.data.shape)
        difference = np.abs(batch.data[0].astype(int) - pillow).mean()
        assert difference < 1, (name, difference)
    mixed = os.path.join(folder, "odd")
    os.makedirs(os.path.join(folder, "mixed"), exist_ok=True)
    os.symlink(mixed, os.path.join(folder, "mixed", "a"))
    (batch,) = Loader(os.path.join(folder, "mixed"), 7, pictures=exact)
    assert batch.data.shape == (7, 30, 40, 3)


def deep_pictures_are_refused():
    save("deep.png", Image.fromarray((np.arange(1200, dtype=np.uint16) * 50).reshape(30, 40)))
    raises(ValueError, "sample 0 is a picture with 16 bits per value", list, Loader(only("deep.png"), 1, pictures=MIDDLE))


def small_pictures_and_large_batches():
    e = raises(ValueError, "90", list, Loader(ROOT, 4, pictures={"size": 90, "resize": 30, "train": False}))
    assert ".jp" in str(e)
    (all_of_them,) = Loader(PATH, 100)
    assert len(all_of_them.data) == 40
    assert len(Loader(PATH, 100, drop_last=True)) == 0 and list(Loader(PATH, 100, drop_last=True)) == []


def sets_that_change():
    """A file that goes, one that gets shorter and one that grows after the loader was made."""
    for change, kind in (("unlink", FileNotFoundError), ("shorten", millrace.DataError), ("swap", millrace.DataError)):
        root = gen("changes-" + change, "--format", "npz", "--files", "12", "--dims", "40x60")
        victim = sorted(f for f in os.listdir(root) if f.endswith(".npz"))[9]
        path = os.path.join(root, victim)
        batches = iter(Loader(root, 2, threads=1, lookahead=1))
        next(batches)
        if change == "unlink":
            os.unlink(path)
        elif change == "shorten":
            os.truncate(path, os.path.getsize(path) // 2)
        else:
            np.savez(path, x=np.zeros((7, 7)))
        raises(kind, victim, list, batches)


def memory_beyond_the_machine():
    for batch in (1 << 30, (1 << 32) - 1):
        e = raises(Exception, "", Loader, PATH, batch, threads=1)
        assert isinstance(e, (MemoryError, ValueError, OSError)) and str(e), repr(e)


TESTS = [exceptions_in_the_middle_of_an_epoch, control_c_ends_a_wait, a_fork_goes_on_by_itself, odd_pictures, deep_pictures_are_refused, small_pictures_and_large_batches, sets_that_change, memory_beyond_the_machine, nothing_is_left_behind]  # fmt: skip
run(TESTS)
