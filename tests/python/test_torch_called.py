"""millrace.torch.DataLoader over data sets that it calls: with worker processes it gives what torch's loader gives, to the last random number; with
threads the same order, without waiting for a slow sample. And what batches look like: lists, tuples, dicts, padded. Skipped without PyTorch."""
import gc
import os
import random
import sys
import threading
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import folder, plain_pictures, raises, run, skip  # noqa: E402

try:
    import torch
except Exception as reason:
    skip(f"no PyTorch ({reason})")
try:
    from PIL import Image
    from torchvision import transforms as T
except Exception as reason:
    print(f"note: no torchvision ({reason}): pictures are left out")
    T = None

from millrace.torch import DataLoader  # noqa: E402

torch.set_num_threads(1)


class Indices(torch.utils.data.Dataset):
    """Sample i is i."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


class Numbers(Indices):
    """Sample i: a dict with i, random numbers of every kind, and a pair."""

    def __getitem__(self, i):
        return {"i": i, "torch": torch.rand(3), "python": random.random(), "pair": (torch.full((2,), i), str(i))}


class Slow(Indices):
    """Sample 1 waits until twelve others have been called."""

    def __init__(self, n, fails=None):
        super().__init__(n)
        self.others, self.began, self.fails = threading.Event(), 0, fails

    def __getitem__(self, i):
        if i == self.fails:
            raise KeyError(f"sample {i}")
        self.began += 1
        if self.began > 12:
            self.others.set()
        if i == 1 and not self.others.wait(60):
            raise TimeoutError("nobody else was called")
        return i


class Buckets:
    """A batch sampler of its own: batches of several sizes, other ones in every epoch."""

    batch_size = 4

    def __iter__(self):
        order = torch.randperm(20).tolist()
        return iter([order[:3], order[3:10], order[10:]])

    def __len__(self):
        return 3


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter([torch.rand(2) for _ in range(6)])


def equal(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def quiet(*args, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DataLoader(*args, **more)


def processes_give_torchs_numbers():
    for workers, persistent in ((0, False), (2, False), (2, True)):
        both = []
        for make in (torch.utils.data.DataLoader, quiet):
            torch.manual_seed(5)
            random.seed(5)
            loader = make(Numbers(20), 6, shuffle=True, num_workers=workers, persistent_workers=persistent)
            both.append([list(loader) for _ in range(2)])
        assert equal(*both), (workers, persistent)
        assert not equal(both[1][0], both[1][1])
    both = []
    for make in (torch.utils.data.DataLoader, quiet):
        torch.manual_seed(6)
        loader = make(Stream(), 2, num_workers=1)
        both.append([list(loader) for _ in range(2)])
    assert equal(*both) and not equal(both[0][0], both[0][1])


def batches_are_the_samplers():
    for workers, number in (("processes", 0), ("processes", 1), ("threads", 1)):
        torch.manual_seed(3)
        theirs = torch.utils.data.DataLoader(Indices(20), batch_sampler=Buckets(), num_workers=number)
        want = [[b.tolist() for b in theirs] for _ in range(2)]
        torch.manual_seed(3)
        ours = quiet(Indices(20), batch_sampler=Buckets(), workers=workers, num_workers=number)
        assert [[b.tolist() for b in ours] for _ in range(2)] == want
        it = iter(ours)
        next(it)
        state, rest = ours.state_dict(), [b.tolist() for b in it]
        ours.load_state_dict(state)
        assert [b.tolist() for b in ours] == rest and len(rest) == 2


def threads_keep_the_order():
    for workers in (1, 3):
        ours = quiet(Numbers(50), 8, shuffle=True, num_workers=workers, workers="threads", generator=torch.Generator().manual_seed(1))
        theirs = torch.utils.data.DataLoader(Indices(50), 8, shuffle=True, generator=torch.Generator().manual_seed(1))
        for _ in range(2):
            got = list(ours)
            assert [b["i"].tolist() for b in got] == [b.tolist() for b in theirs]
            assert all(b["pair"][0][:, 1].tolist() == b["i"].tolist() and list(b["pair"][1]) == [str(i) for i in b["i"].tolist()] for b in got)
    slow = quiet(Slow(40), 4, num_workers=2, workers="threads", prefetch_factor=4)
    assert [b.tolist() for b in slow] == [list(range(i, i + 4)) for i in range(0, 40, 4)]  # batch 0 waits for samples of batch 3
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert "3 threads" in repr(DataLoader(Indices(5), num_workers=3, workers="threads"))
    assert "falling back to the Python dataset (3 threads): " in str(said[0].message), str(said[0].message)


def threads_tell_errors_and_end():
    before = threading.active_count()
    it = iter(quiet(Slow(40, fails=9), 4, num_workers=1, workers="threads", sampler=[0, 2, 3, 4, 5, 6, 7, 9, 10]))
    assert next(it).tolist() == [0, 2, 3, 4]
    raises(KeyError, "sample 9", list, it)
    raises(ZeroDivisionError, "", list, quiet(Indices(4), 2, workers="threads", worker_init_fn=lambda i: 1 / i))
    raises(RuntimeError, "no", list, _bad_collate())
    for _ in range(10):
        it = iter(quiet(Indices(1000), 4, num_workers=3, workers="threads"))
        next(it)
    del it
    gc.collect()
    for _ in range(200):
        if threading.active_count() <= before:
            break
        threading.Event().wait(0.05)
    assert threading.active_count() <= before
    raises(ValueError, "workers is", DataLoader, folder, workers="greenlets")
    raises(ValueError, "IterableDataset", quiet, Stream(), workers="threads")


def _bad_collate():
    def refuse(batch):
        raise RuntimeError("no")

    return quiet(Indices(4), 2, workers="threads", collate_fn=refuse)


def batches_have_the_structure_asked_for():
    if T is None:
        return
    root = plain_pictures("pictures", "--files", "8", "--dims", "60x80x3", "--subfolders", "2")
    t = T.Compose([T.CenterCrop(32), T.ToTensor()])
    plain, pair, named = (next(iter(DataLoader(root, 4, transform=t, structure=s))) for s in (None, "tuple", "dict"))
    assert type(plain) is list and type(pair) is tuple and set(named) == {"data", "label"}
    assert torch.equal(plain[0], pair[0]) and torch.equal(named["data"], plain[0]) and torch.equal(named["label"], plain[1])
    raises(ValueError, "structure is", DataLoader, root, structure="set")


def variable_shapes_are_lists_or_padded():
    if T is None:
        return
    root = os.path.join(folder, "sizes")
    os.makedirs(os.path.join(root, "a"))
    sizes = [(64, 48), (30, 70), (64, 48), (20, 20), (90, 10)]
    for i, size in enumerate(sizes):
        Image.merge("RGB", [Image.effect_noise(size, s) for s in (30, 60, 90)]).save(f"{root}/a/{i}.png")
    rows, labels = next(iter(DataLoader(root, 5, transform=T.PILToTensor())))
    assert [tuple(r.shape) for r in rows] == [(3, h, w) for w, h in sizes] and labels.tolist() == [0] * 5
    padded, labels, shapes = next(iter(DataLoader(root, 5, transform=T.PILToTensor(), variable="pad")))
    assert padded.shape == (5, 3, 70, 90) and shapes.tolist() == [list(r.shape) for r in rows]
    for row, whole, (_, h, w) in zip(rows, padded, shapes.tolist()):
        assert torch.equal(whole[:, :h, :w], row) and whole.sum() == row.sum()
    named = next(iter(DataLoader(root, 2, transform=T.ToTensor(), variable="pad", structure="dict")))
    assert set(named) == {"data", "label", "shape"} and named["shape"].tolist() == [[3, 48, 64], [3, 70, 30]]
    one = next(iter(DataLoader(root, 1, transform=T.ToTensor(), variable="pad")))
    assert one[2].tolist() == [[3, 48, 64]]
    raises(ValueError, "variable is", DataLoader, root, variable="crop")


run([
    processes_give_torchs_numbers, batches_are_the_samplers, threads_keep_the_order, threads_tell_errors_and_end,
    batches_have_the_structure_asked_for, variable_shapes_are_lists_or_padded,
])  # fmt: skip
