"""Chains of transforms of which only the first are known: those are native, the others are called. Pictures are torchvision's within rounding, what is
drawn is a function of (seed, epoch, sample), broken samples are left out and counted. Also data sets that are called with on_error="skip", without
batches, or by a sampler without an end. Skipped without PyTorch and torchvision."""
import gc
import os
import random
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import BINARY, plain_pictures, raises, run, skip  # noqa: E402

try:
    import torch
    from torchvision import transforms as T
    from torchvision.datasets import ImageFolder
except Exception as reason:
    skip(f"no PyTorch with torchvision ({reason})")
try:
    from torchvision.transforms import v2
except ImportError:
    v2 = None
from PIL import Image  # noqa: E402

import millrace  # noqa: E402
from millrace.torch import DataLoader  # noqa: E402

torch.set_num_threads(1)
ROOT = plain_pictures("pictures", "--files", "50", "--dims", "60x80x3", "--subfolders", "5")
CUT = [T.Resize(40), T.CenterCrop(32)]


class Kind:
    """A transform of the user's own that says what it got."""

    def __init__(self, kind):
        self.kind = kind

    def __call__(self, picture):
        assert type(picture) is self.kind, type(picture)
        return picture


class Noise:
    """Draws from every source of random numbers."""

    def __call__(self, picture):
        return torch.cat([torch.rand(2), torch.tensor([random.random()])])


def quiet(*args, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DataLoader(*args, **more)


def pictures_are_torchvisions():
    chains = [
        (T.Compose([*CUT, Kind(Image.Image), T.Grayscale(3), T.ToTensor()]), "Kind"),
        (T.Compose([*CUT, T.ToTensor(), Kind(torch.Tensor), T.RandomErasing(0)]), "Kind"),
        (T.Compose([T.RandomHorizontalFlip(1), T.Resize((30, 30)), T.PILToTensor(), T.RandomErasing(0)]), "RandomErasing"),
        (T.Compose([T.Resize(40), T.ColorJitter(), T.CenterCrop(20), T.ToTensor(), T.Normalize([0.5] * 3, [0.5] * 3)]), "ColorJitter"),
    ]
    if v2 is not None and hasattr(v2, "ToImage"):
        from torchvision import tv_tensors

        chains.append((v2.Compose([v2.ToImage(), v2.Resize(30), v2.CenterCrop(20), Kind(tv_tensors.Image), v2.ToDtype(torch.float32, scale=True)]), "Kind"))
    for chain, why in chains:
        for workers in (0, 2):
            data = ImageFolder(ROOT, chain)
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                ours = DataLoader(data, 9, num_workers=workers, shuffle=True, generator=torch.Generator().manual_seed(1))
            told = str(said[0].message)
            assert ours.native == "in part" and f"'{why}'" in ours.reason and len(said) == 1 and "first transforms are native" in told and why in told, told
            assert "native in part" in repr(ours) and ours.classes == data.classes
            theirs = list(torch.utils.data.DataLoader(data, 9, shuffle=True, generator=torch.Generator().manual_seed(1)))
            have = list(ours)
            assert len(have) == len(theirs)
            for (x, y), (u, v) in zip(have, theirs):
                assert torch.equal(y, v) and x.dtype == u.dtype and x.shape == u.shape and type(x) is type(u)
                assert (x.float() - u.float()).abs().mean() <= (1 if x.dtype == torch.uint8 else 2 / 255), chain
    path = quiet(ROOT, 9, transform=chains[0][0])  # a path, too
    assert len(path) == 6 and next(iter(path))[0].shape == (9, 3, 32, 32)


def what_is_drawn_follows_from_seed_epoch_and_sample():
    t = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.ToTensor(), Noise()])

    def epoch(e, batch=8, **more):
        loader = quiet(ImageFolder(ROOT, t), batch, **{"seed": 1, **more})
        loader.set_epoch(e)
        return torch.cat([x for x, _ in loader])

    torch.manual_seed(3), random.seed(3)
    want = torch.rand(1), random.random()
    torch.manual_seed(3), random.seed(3)
    base = epoch(1, generator=torch.Generator())
    assert (torch.rand(1), random.random()) == want  # the program's own numbers are left alone
    assert torch.equal(base, epoch(1, 13, num_workers=2)) and torch.equal(base, epoch(1, 5, num_workers=1, persistent_workers=True))
    assert not torch.equal(base, epoch(2)) and not torch.equal(base, epoch(1, seed=2))
    assert len(base.unique(dim=0)) == 50
    loader = quiet(ImageFolder(ROOT, t), 8, seed=1, num_workers=2, persistent_workers=True)
    list(loader)
    it = iter(loader)
    first = [next(it)[0], next(it)[0]]
    state = loader.state_dict()
    again = quiet(ImageFolder(ROOT, t), 8, seed=1)
    again.load_state_dict(state)
    assert torch.equal(torch.cat(first + [x for x, _ in again]), base)
    del it, loader
    gc.collect()  # now, not in a worker that is forked later


def workers_may_be_spawned():
    """In a program of its own, which a spawned worker can import."""
    import subprocess

    text = f"""
import sys
sys.path.insert(0, {os.path.join(BINARY, "python")!r})
from torchvision import transforms as T
from torchvision.datasets import ImageFolder
from millrace.torch import DataLoader
data = ImageFolder({ROOT!r}, T.Compose([T.Resize(40), T.CenterCrop(32), T.Grayscale(3), T.ToTensor()]))
print(sum(len(y) for _, y in DataLoader(data, 9, num_workers=1, multiprocessing_context="spawn")))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", text], capture_output=True, text=True, timeout=120)
    assert done.stdout == "50\n", done.stdout + done.stderr


def collate_functions_get_native_pictures():
    data = ImageFolder(ROOT, T.Compose([*CUT, T.ToTensor()]))

    def mix(batch):
        x, y = torch.utils.data.default_collate(batch)
        return {"x": x + x.flip(0), "y": y}

    for workers in (0, 1):
        ours = quiet(data, 7, num_workers=workers, collate_fn=mix)
        assert ours.native == "in part" and "collate_fn" in ours.reason
        for a, b in zip(ours, torch.utils.data.DataLoader(data, 7, collate_fn=mix)):
            assert torch.equal(a["y"], b["y"]) and (a["x"] - b["x"]).abs().mean() < 2 / 255


def broken_samples_are_left_out():
    bad = plain_pictures("bad", "--files", "20", "--dims", "60x80x3", "--subfolders", "2")
    victims = sorted(os.path.join(d, f) for d, _, fs in os.walk(bad) for f in fs)
    with open(victims[7], "r+b") as f:
        f.truncate(300)
    for transform, more in (
        (T.Compose([*CUT, T.Grayscale(3), T.ToTensor()]), {}),
        (T.Compose([*CUT, T.Grayscale(3), T.ToTensor()]), {"num_workers": 1}),
        (T.Compose([T.Grayscale(3), *CUT, T.ToTensor()]), {}),
        (T.Compose([T.Grayscale(3), *CUT, T.ToTensor()]), {"num_workers": 1}),
        (T.Compose([T.Grayscale(3), *CUT, T.ToTensor()]), {"num_workers": 2, "workers": "threads"}),
    ):
        data = ImageFolder(bad, transform)
        raises(OSError, "", list, quiet(data, 5, **more))
        ours = quiet(data, 5, on_error="skip", **more)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            for _ in range(2):
                assert [len(y) for _, y in ours] == [5, 4, 5, 5]
        told = [str(w.message) for w in said if "left out" in str(w.message)]
        assert ours.skipped == 2 and len(told) == 1 and ("sample 7" in told[0]), (ours.skipped, told, more)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            raises(millrace.DataError, "can be read", list, DataLoader(data, on_error="skip", sampler=[7], **more))


def all_or_nothing_can_be_asked_for():
    jitter = T.Compose([*CUT, T.ColorJitter(0.5), T.ToTensor()])
    raises(NotImplementedError, "ColorJitter", DataLoader, ImageFolder(ROOT, jitter), native=True)
    assert DataLoader(ImageFolder(ROOT, T.Compose([*CUT, T.ToTensor()])), native=True).native
    both = []
    for make in (torch.utils.data.DataLoader, lambda *a, **k: quiet(*a, native=False, **k)):
        torch.manual_seed(1)
        both.append([x for x, _ in make(ImageFolder(ROOT, jitter), 8, shuffle=True, num_workers=1)])
    assert all(torch.equal(a, b) for a, b in zip(*both))
    raises(NotImplementedError, "ColorJitter", DataLoader, ImageFolder(ROOT, jitter), decode="gpu", device="cpu")
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        DataLoader(ImageFolder(ROOT, jitter), structure="dict", fast=True)
    assert "without effect then: fast, structure" in str(said[0].message), str(said[0].message)


class Endless:
    """A sampler without a length or an end."""

    def __iter__(self):
        while True:
            yield from torch.randperm(20).tolist()


def samplers_without_an_end_and_single_samples():
    data = list(range(20))
    for more in ({"sampler": Endless(), "batch_size": 4}, {"sampler": Endless(), "batch_size": None}, {"batch_size": None, "shuffle": True}):
        for workers in (0, 1):
            both = []
            for make in (torch.utils.data.DataLoader, quiet):
                torch.manual_seed(2)
                it = iter(make(data, num_workers=workers, **more))
                both.append([torch.as_tensor(next(it)).tolist() for _ in range(20)])
            assert both[0] == both[1]
    ours = quiet(data, batch_size=None)
    assert len(ours) == 20
    it = iter(ours)
    first = [next(it) for _ in range(7)]
    state = ours.state_dict()
    again = quiet(data, batch_size=None)
    again.load_state_dict(state)
    assert first + list(again) == data


run([
    pictures_are_torchvisions, what_is_drawn_follows_from_seed_epoch_and_sample, workers_may_be_spawned, collate_functions_get_native_pictures,
    broken_samples_are_left_out, all_or_nothing_can_be_asked_for, samplers_without_an_end_and_single_samples,
])  # fmt: skip
