"""millrace.torch.DataLoader over called data sets of small samples: worker processes hand over several batches in one message, and everything
a program can see is as with torch's loader, batch by batch: values, types, memory of their own, random numbers, worker_info, exceptions, states.
How many batches travel together is fixed here, so that no clock decides what is tested. Skipped without PyTorch."""
import collections
import gc
import os
import pickle
import random
import signal
import subprocess
import sys
import types
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import BINARY, folder, raises, run, skip  # noqa: E402

try:
    import numpy as np
    import torch
except Exception as reason:
    skip(f"no PyTorch ({reason})")

from millrace import _joined, _processes, _served  # noqa: E402
from millrace.torch import DataLoader  # noqa: E402

torch.set_num_threads(1)
warnings.simplefilter("ignore")
TORCHS = torch.utils.data.DataLoader
N = 53
FULL = bool(os.environ.get("MR_TEST_FULL"))
Pair = collections.namedtuple("Pair", "a b")


class Of(torch.utils.data.Dataset):
    """Sample i is make(i)."""

    def __init__(self, make, n=N):
        self.make, self.n = make, n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return self.make(i)


class Several(Of):
    """With PyTorch's call for a whole batch."""

    def __getitems__(self, indices):
        return [self.make(i) for i in indices]


class Stream(torch.utils.data.IterableDataset):
    """Each worker's own part, of unequal sizes; sample by sample."""

    def __init__(self, make, n=N):
        self.make, self.n = make, n

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        k, of = (info.id, info.num_workers) if info else (0, 1)
        for i in range(self.n):
            if i * i % 7 % of == k:
                yield self.make(i)


def noise(i):
    return torch.rand(3), random.random(), torch.full((2,), i), np.random.rand(2)


def mixed(i):
    return torch.full((2,), i, dtype=torch.float32 if i % 5 == 3 else torch.int64)


def shapes(i):
    return torch.arange(4 if i == 17 else 3)


def fails(i):
    if i in (4, 31):
        raise KeyError(f"sample {i}")
    return i


def numbered(i):
    return os.getpid() and i


MAKES = {
    "tensor": lambda i: torch.arange(i, i + 5),
    "half": lambda i: torch.full((3, 2), i, dtype=torch.bfloat16),
    "complex": lambda i: torch.tensor([1j * i]),
    "empty": lambda i: torch.empty(0, 3),
    "scalar tensor": lambda i: torch.tensor(i),
    "views": lambda i: torch.arange(24).view(4, 6)[:, i % 3 : i % 3 + 3],
    "array": lambda i: np.arange(i, i + 4, dtype=np.uint8),
    "numpy number": lambda i: np.float32(i),
    "int": lambda i: i,
    "large int": lambda i: 2**62 + i,
    "float": lambda i: i / 3,
    "bool": lambda i: i % 3 == 0,
    "int and float": lambda i: i if i % 2 else i / 2,
    "string": lambda i: f"sample {i}",
    "bytes": lambda i: b"%d" % i,
    "dict": lambda i: {"x": torch.arange(3) + i, "y": i, "z": {"deep": [str(i), i / 2]}},
    "dict in any order": lambda i: {"x": i, "y": 2} if i % 3 else {"y": 2, "x": i},
    "tuple": lambda i: (torch.ones(2) * i, i, (str(i), np.int16(i))),
    "named": lambda i: Pair(i, torch.ones(1) * i),
    "mixed dtypes": mixed,
    "noise": noise,
}


def equal(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.stride() == b.stride() and torch.equal(a, b)
    return bool(np.array_equal(a, b)) if isinstance(a, np.ndarray) else a == b


class together:
    """So many batches in one message."""

    def __init__(self, size):
        self.size = size

    def __enter__(self):
        self.before = _processes.Pace.__init__, _processes.Pace.observe

        def init(pace, part_bytes):
            pace.size = self.size

        _processes.Pace.__init__, _processes.Pace.observe = init, lambda pace, group, asked: None

    def __exit__(self, *_):
        _processes.Pace.__init__, _processes.Pace.observe = self.before


def both(dataset, epochs=2, size=7, **more):
    """Batches of torch's loader and of ours, or the errors in their places."""
    out = []
    for make in (TORCHS, DataLoader):
        with together(size):
            torch.manual_seed(5)
            random.seed(5)
            np.random.seed(5)
            loader = make(dataset, **more)
            out.append([epoch(loader) for _ in range(epochs)])
    return out


def epoch(loader):
    out, it = [], iter(loader)
    while True:
        try:
            out.append(next(it))
        except StopIteration:
            return out
        except Exception as why:
            out.append((type(why).__name__, str(why).splitlines()[0], str(why).strip().splitlines()[-1]))


def batches_are_torchs():
    names = list(MAKES)
    every = Of(lambda i: MAKES[names[i % len(names)]](i // len(names)), 12 * len(names))
    order = [[k + len(names) * i for i in range(4 * j, 4 * j + 4)] for k in range(len(names)) for j in range(3)]
    theirs, ours = both(every, 1, 3, batch_sampler=order, num_workers=1)  # each message has one kind
    for k, name in enumerate(names):
        assert equal(theirs[0][3 * k : 3 * k + 3], ours[0][3 * k : 3 * k + 3]), name
    theirs, ours = both(every, 1, 7, batch_sampler=order, num_workers=2)  # and now several
    assert equal(theirs, ours)
    theirs, ours = both(every, 1, 7, batch_size=4, shuffle=True, num_workers=2)  # and batches, too
    assert [type(a) for a in theirs[0]] == [type(b) for b in ours[0]]
    for more in (dict(num_workers=1), dict(num_workers=2, persistent_workers=True), dict(num_workers=4, drop_last=True, prefetch_factor=3), dict(num_workers=16)):
        for kind in (Of, Several) if FULL else (Several,):
            theirs, ours = both(kind(noise), epochs=2, batch_size=4, shuffle=True, **more)
            assert equal(theirs, ours), (more, kind)
            assert not equal(ours[0], ours[1])
    theirs, ours = both(Of(noise), batch_size=None, num_workers=2)
    assert equal(theirs, ours)
    theirs, ours = both(Of(noise), num_workers=2, batch_sampler=[[1, 2, 3], [4], [5, 6, 7, 8, 9], []])
    assert equal(theirs, ours)


def streams_are_torchs():
    for more in (dict(batch_size=4), dict(batch_size=4, drop_last=True), dict(batch_size=None), dict(batch_size=40))[: None if FULL else 3]:
        for workers in (0, 1, 2, 5) if FULL else (0, 3):
            for persistent in (False, True) if workers else (False,):
                for size in (1, 3) if FULL else (3,):
                    theirs, ours = both(Stream(noise), size=size, num_workers=workers, persistent_workers=persistent, **more)
                    assert equal(theirs, ours), (more, workers, persistent, size, len(theirs[0]), len(ours[0]))


def memory_is_each_batchs_own():
    with together(5):
        loader = DataLoader(Of(MAKES["dict"]), batch_size=4, num_workers=2)
        got = list(loader)
    assert loader.stats()["batches_per_message"] == 5
    for batch in got:
        assert batch["x"].untyped_storage().nbytes() if hasattr(batch["x"], "untyped_storage") else True
        assert batch["x"].storage().size() == batch["x"].numel(), "a batch is a part of a larger tensor"
        batch["x"] += 1000
    assert [int(b["x"][0, 0]) for b in got] == [1000 + 4 * k for k in range(len(got))]


class Box:
    def __init__(self, **parts):
        self.parts = parts


def boxed(rows):
    x = torch.stack(rows)
    return Box(x=x, same=x, part=x[:, :1], text=["a"], array=x.numpy() * 2, grid=torch.zeros(len(rows), 2).t(), grad=torch.ones(1, requires_grad=True))


def paired(rows):
    x = torch.stack(rows)
    return Box(x=x, same=x, mask=x > 5)


def collate_functions_are_the_programs():
    """What they make arrives as it was, also one object in two places, views, gradients."""
    for collate in (boxed, paired):
        with together(6):
            theirs = list(TORCHS(Of(MAKES["tensor"]), 4, collate_fn=collate, num_workers=2))
            ours = list(DataLoader(Of(MAKES["tensor"]), 4, collate_fn=collate, num_workers=2))
        assert len(theirs) == len(ours)
        for a, b in zip(theirs, ours):
            assert list(a.parts) == list(b.parts)
            assert all(type(x) is type(y) and (equal(x, y) if not getattr(x, "requires_grad", False) else y.requires_grad) for x, y in zip(a.parts.values(), b.parts.values()))
            assert (a.parts["x"] is a.parts["same"]) == (b.parts["x"] is b.parts["same"])
            b.parts["same"][0] = -1
            assert b.parts["x"][0, 0] == -1
            if collate is boxed:
                assert b.parts["part"][0, 0] == -1  # a view of it, as torch gives it


def errors_are_in_their_places():
    for kind, more in ((Of, dict(shuffle=False)), (Several, {}), (Stream, {})):
        theirs, ours = both(kind(fails), batch_size=4, num_workers=2, **more)
        assert equal(theirs, ours) and any(type(b) is tuple for b in ours[0]), (theirs[0], ours[0])
    theirs, ours = both(Of(shapes), batch_size=4, num_workers=2)
    assert equal(theirs, ours) and sum(type(b) is tuple for b in ours[0]) == 1
    def ends(i):
        if i == 9:
            raise StopIteration
        return i

    theirs, ours = both(Of(ends), epochs=1, batch_size=4, num_workers=1)
    assert [b.tolist() if isinstance(b, torch.Tensor) else b[0] for b in theirs[0]] == [b.tolist() if isinstance(b, torch.Tensor) else b[0] for b in ours[0]]


seen = []


def look(worker):
    info = torch.utils.data.get_worker_info()
    info.dataset.make = lambda i: (i, info.id, info.seed, torch.utils.data.get_worker_info().dataset is info.dataset, type(info.dataset).__name__, info.num_workers)


def workers_are_shown_the_programs_data_set():
    theirs, ours = both(Of(None), batch_size=2, num_workers=3, worker_init_fn=look, collate_fn=list)
    assert equal(theirs, ours)
    assert all(sample[3] and sample[4] == "Of" for sample in ours[0][0])


def killed(i):
    if i == 40:
        os.kill(os.getpid(), signal.SIGKILL)
    return i


def a_killed_worker_is_an_error():
    with together(4):
        raises(RuntimeError, "DataLoader worker (pid", list, DataLoader(Of(killed), 4, num_workers=2))


def shared_memory_is_given_back():
    def descriptors():
        gc.collect()
        return len(os.listdir("/proc/self/fd"))

    def maps():
        with open("/proc/self/maps") as f:
            return sum("millrace-batches" in line for line in f)

    before = None
    for k in range(4):
        with together(5):
            loader = DataLoader(Of(MAKES["tensor"]), 4, num_workers=2)
            list(loader)
            it = iter(loader)
            kept = next(it)
        del it, loader
        if k == 1:
            before = descriptors(), maps()
    assert descriptors() <= before[0] and maps() <= before[1], (before, descriptors(), maps())
    assert kept.shape == (4, 5)


SPAWNS = """
import sys, torch, warnings
from millrace import _processes
from millrace.torch import DataLoader
class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 20
    def __getitem__(self, i):
        return torch.full((9000,), i)
if __name__ == "__main__":
    warnings.simplefilter("ignore")
    _processes.Pace.observe = lambda pace, group, asked: setattr(pace, "size", 2)
    loader = DataLoader(Numbers(), 2, num_workers=1, multiprocessing_context="spawn")
    assert [b[:, 0].tolist() for b in loader] == [[i, i + 1] for i in range(0, 20, 2)]
    assert loader.stats()["batches_per_message"] == 2
"""


def processes_that_are_spawned_share_it_too():
    """More than travels in a message without shared memory."""
    path = os.path.join(folder, "spawns.py")
    with open(path, "w") as f:
        f.write(SPAWNS)
    environment = dict(os.environ, PYTHONPATH=os.path.join(BINARY, "python"))
    subprocess.run([sys.executable, path], check=True, env=environment, timeout=200)


def programs_end_in_silence():
    """Memory that lives until the interpreter has emptied the modules."""
    said, before, modules = [], sys.unraisablehook, _joined.os
    memory = _joined.Memory(1, 4096)
    fd = memory._fd
    sys.unraisablehook, _joined.os = said.append, None
    try:
        del memory
        gc.collect()
    finally:
        sys.unraisablehook, _joined.os = before, modules
    assert not said and raises(OSError, "", os.fstat, fd), said


class Walker(torch.utils.data.IterableDataset):
    """A stream that is its own iterator, and has a place to load into only when it has begun."""

    epoch = -1

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        k, of = (info.id, info.num_workers) if info else (0, 1)
        self.epoch += 1
        self.at = {"next": 24 * k // of, "end": 24 * (k + 1) // of}
        return self

    def __next__(self):
        if self.at["next"] == self.at["end"]:
            raise StopIteration
        self.at["next"] += 1
        return self.at["next"] + 100 * self.epoch

    def state_dict(self):
        return {**self.at, "epoch": self.epoch}

    def load_state_dict(self, state):
        self.epoch = state["epoch"]
        for name in self.at:
            self.at[name] = state[name]


def streams_that_are_their_own_iterators_go_on():
    """In the middle of an epoch, and behind its end, where the next one is whole."""
    for more in ({}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}):
        for at in (None, 0, 3, 6, 7) if not more else (3, 7):
            made = DataLoader(Walker(), 4, **more)
            it = iter(made) if at is not None else None
            for _ in range(at or 0):
                next(it, None)
            state = pickle.loads(pickle.dumps(made.state_dict()))
            rest = [b.tolist() for b in (made if it is None else it)]
            second = [b.tolist() for b in made]
            again = DataLoader(Walker(), 4, **more)
            again.load_state_dict(state)
            got = [[b.tolist() for b in again] for _ in range(2)]
            assert got == [rest, second] if at != 7 else got[0] == second, (more, at, got, rest, second)
            assert sum(map(len, second)) == 24 and len(rest) == 6 - min(at or 0, 6), (more, at, rest)


class Dice(torch.utils.data.Dataset):
    """Its state is the random numbers of its process."""

    def __len__(self):
        return 22

    def __getitem__(self, i):
        return torch.randint(1000, (1,)).item()

    def state_dict(self):
        return {"generator": torch.get_rng_state()}

    def load_state_dict(self, state):
        torch.set_rng_state(state["generator"])


def persistent_workers_go_on_behind_an_epoch():
    """However many batches lie between two states that they send along."""
    for every in (1, 10):
        def make(every=every):
            return DataLoader(Dice(), 3, num_workers=2, persistent_workers=True, snapshot_every_n_steps=every)

        made = make()
        list(made)
        state = made.state_dict()
        rest = [b.tolist() for b in made]
        again = make()
        again.load_state_dict(state)
        assert [b.tolist() for b in again] == rest, every


def loading_forgets_what_workers_did():
    """A state that is loaded into a loader whose workers are further on, here that of the beginning."""
    for more in ({"persistent_workers": True}, {}):
        made = DataLoader(Dice(), 3, num_workers=2, generator=torch.Generator().manual_seed(1), **more)
        start = made.state_dict()
        rest = [b.tolist() for b in made]
        next(iter(made))
        made.load_state_dict(start)
        assert made.state_dict() == start
        assert [b.tolist() for b in made] == rest, more


class Named(collections.OrderedDict):
    """Of a library."""


def batches_are_the_collate_functions_own():
    """Mappings and sequences of a class of their own come through; with `device` as torch's pin_memory makes them."""
    kinds = (Named, collections.UserDict, lambda d: collections.defaultdict(int, d), types.MappingProxyType, dict)
    for kind in kinds:
        def collate(rows, kind=kind):
            return kind({"x": torch.tensor(rows), "n": [torch.ones(1), "text"]})

        for more in ({}, {"device": "cpu"}, {"on_error": "skip"}):
            (batch,) = DataLoader(range(3), 3, collate_fn=collate, **more)
            assert type(batch) is type(collate([1])) and batch["x"].tolist() == [0, 1, 2], (type(batch), more)
            assert batch["n"][1] == "text"


def groups_can_be_pinned():
    """What torch's thread for pinned memory does to them."""
    called = []
    before = _served.pin_memory
    _served.pin_memory = lambda batch: called.append(batch) or batch
    try:
        memory = _joined.Memory(2, 1 << 16)
        space = _joined.Space(memory, 1)
        group = _served.Group(0, 1)
        joined = _joined.join([[torch.arange(2), torch.arange(2)], [torch.arange(2) + 5]], space)
        group.batches = [joined, joined, _joined.pack({"x": torch.ones(2)}, space), _served.Failure("no"), "text"]
        group.states = [None] * 5
        group.pin_memory()
    finally:
        _served.pin_memory = before
    assert equal(group.batches[:3], [torch.tensor([[0, 1], [0, 1]]), torch.tensor([[5, 6]]), {"x": torch.ones(2)}])
    assert group.batches[3:] == [_served.Failure("no"), "text"] and len(called) == 4


def large_batches_travel_one_by_one():
    """More than a part of the shared memory holds."""
    big = Of(lambda i: torch.full((300_000,), float(i)), 12)
    loader = DataLoader(big, 2, num_workers=2)
    assert [int(b[0, 0]) for b in loader] == list(range(0, 12, 2))
    with together(3):
        got = list(DataLoader(big, 2, num_workers=2))
        assert [int(b[1, 7]) for b in got] == list(range(1, 12, 2))


def states_continue_anywhere():
    for more in (dict(num_workers=2), dict(num_workers=3, persistent_workers=True)):
        for at in (0, 1, 5, 13, 14) if FULL else (1, 13):
            for size in (1, 4) if FULL else (4,):
                with together(size):
                    torch.manual_seed(1)
                    loader = DataLoader(Of(MAKES["int"]), 4, shuffle=True, **more)
                    it = iter(loader)
                    for _ in range(at):
                        next(it)
                    state = loader.state_dict()
                    rest = list(it)
                    second = list(loader)
                    torch.manual_seed(2)
                    again = DataLoader(Of(MAKES["int"]), 4, shuffle=True, **more)
                    again.load_state_dict(state)
                    assert equal(list(again), rest), (more, at, size)
                    assert len(second) == 14


run([
    batches_are_torchs, streams_are_torchs, memory_is_each_batchs_own, collate_functions_are_the_programs, errors_are_in_their_places,
    workers_are_shown_the_programs_data_set, a_killed_worker_is_an_error, shared_memory_is_given_back, processes_that_are_spawned_share_it_too,
    streams_that_are_their_own_iterators_go_on, persistent_workers_go_on_behind_an_epoch,
    loading_forgets_what_workers_did,    programs_end_in_silence, batches_are_the_collate_functions_own, groups_can_be_pinned, large_batches_travel_one_by_one, states_continue_anywhere,
])  # fmt: skip
