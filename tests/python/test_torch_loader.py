"""millrace.torch.DataLoader beside torch.utils.data.DataLoader: the same order over epochs and ranks, the same pictures, states that
continue exactly, errors of the right kind, nothing left behind. Skipped without PyTorch; pictures are compared where torchvision is."""
import gc
import json
import os
import random
import subprocess
import sys
import threading
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import BINARY, MILLRACE, folder, plain_pictures, gen, raises, run, skip  # noqa: E402

try:
    import torch
    from torch.utils.data.distributed import DistributedSampler
except Exception as reason:
    skip(f"no PyTorch ({reason})")
try:
    import torchvision
    from torchvision import transforms as T
    from torchvision.datasets import ImageFolder
except Exception as reason:
    print(f"note: no torchvision ({reason}): its pictures are not compared")
    torchvision = None

import millrace  # noqa: E402
from millrace.torch import DataLoader, Tokens  # noqa: E402

torch.set_num_threads(1)
ROOT = plain_pictures("pictures", "--files", "101", "--dims", "60x80x3", "--subfolders", "7")
NUMBERS = gen("numbers", "--format", "npz", "--files", "103", "--dims", "5x3", "--dtype", "float32", "--labels", "50")
N = 101


class Indices(torch.utils.data.Dataset):
    """Sample i is i: torch's order as batches."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


def small(root=ROOT, **more):
    return DataLoader(root, num_workers=2, **{"batch_size": 8, **more})


def whole():
    """All pictures in order, as the key to tell which one a row is."""
    return [row for batch, _ in small() for row in rows_of(batch)]


def rows_of(batch):
    return list(batch) if isinstance(batch, torch.Tensor) else batch


def ids_of(loader, pictures):
    keys = {p.numpy().tobytes(): i for i, p in enumerate(pictures)}
    return [[keys[r.numpy().tobytes()] for r in rows_of(x)] for x, _ in loader]


def order_is_torchs_over_epochs():
    pictures = whole()
    assert len(pictures) == N
    for batch, drop, own in ((8, False, True), (10, True, True), (101, False, True), (9, False, False)):
        ours_g, theirs_g = (torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)) if own else (None, None)
        ours = small(batch_size=batch, shuffle=True, drop_last=drop, generator=ours_g)
        theirs = torch.utils.data.DataLoader(Indices(N), batch, shuffle=True, drop_last=drop, generator=theirs_g)
        assert len(ours) == len(theirs)
        for epoch in range(3):
            torch.manual_seed(epoch)
            want = [b.tolist() for b in theirs]
            torch.manual_seed(epoch)
            assert ids_of(ours, pictures) == want, (batch, drop, own, epoch)
    assert ids_of(small(), pictures) == [b.tolist() for b in torch.utils.data.DataLoader(Indices(N), 8)]


def order_is_torchs_when_epochs_are_given_up():
    """torch's sampler takes more numbers at an epoch's end, which it asks for ahead of the loop: any break leaves the generator as torch would."""
    data = torch.utils.data.TensorDataset(torch.arange(20))
    for batch, drop, workers in ((5, False, 0), (6, False, 0), (6, True, 0), (5, False, 1), (6, False, 1)):
        for stop in range(1, 6):
            order = []
            for make in (torch.utils.data.DataLoader, DataLoader):
                g = torch.Generator().manual_seed(3)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    loader = make(data, batch, shuffle=True, drop_last=drop, num_workers=workers, generator=g)
                order.append([])
                for _ in range(3):
                    for k, (x,) in enumerate(loader):
                        order[-1] += x.tolist()
                        if k + 1 == stop:
                            break
            assert order[0] == order[1], (batch, drop, workers, stop)
    pictures = whole()
    g = [torch.Generator().manual_seed(3) for _ in "12"]
    ours, theirs = small(shuffle=True, generator=g[0]), torch.utils.data.DataLoader(Indices(N), 8, shuffle=True, generator=g[1], num_workers=2)
    for stop in (1, 9, 10, 12, 13, 99):
        have, want = (list(zip(range(stop), loader)) for loader in (ours, theirs))
        assert ids_of([x for _, x in have], pictures) == [x.tolist() for _, x in want], stop


def order_is_that_of_any_sampler():
    pictures = whole()
    for world in (1, 2, 3, 8):
        for drop in (False, True):
            for rank in range(world):
                ours_s = DistributedSampler(Indices(N), world, rank, shuffle=True, seed=4, drop_last=drop)
                ours = small(sampler=ours_s)
                theirs_s = DistributedSampler(Indices(N), world, rank, shuffle=True, seed=4, drop_last=drop)
                for epoch in (0, 1, 5):
                    ours.set_epoch(epoch)
                    theirs_s.set_epoch(epoch)
                    assert sum(ids_of(ours, pictures), []) == list(theirs_s)
    picks = [5, 5, 0, 100, 7]
    assert ids_of(small(sampler=picks, batch_size=2), pictures) == [[5, 5], [0, 100], [7]]


def global_random_numbers_are_left_alone():
    """What an epoch takes from torch's global generator is what torch's own loader takes."""
    for shuffle in (False, True):
        torch.manual_seed(11)
        list(torch.utils.data.DataLoader(Indices(N), 8, shuffle=shuffle))
        want = torch.rand(1)
        torch.manual_seed(11)
        list(small(shuffle=shuffle))
        assert torch.equal(torch.rand(1), want)


def states_continue_exactly():
    pictures = whole()
    for trial in range(12):
        stop, epoch = random.randrange(0, 14), random.randrange(0, 3)
        one = small(shuffle=True, generator=torch.Generator().manual_seed(trial))
        for _ in range(epoch):
            list(one)
        it, head = iter(one), []
        for _ in range(min(stop, len(one))):
            head.append(next(it))
        state = one.state_dict()
        rest = ids_of(it, pictures) + sum((ids_of(one, pictures) for _ in range(2)), [])
        two = small(shuffle=True, generator=torch.Generator().manual_seed(trial))
        two.load_state_dict(state)
        have = sum((ids_of(two, pictures) for _ in range(3)), [])
        assert have == rest, (trial, stop, epoch)
    raises(ValueError, "another run: batch_size", small(batch_size=9).load_state_dict, state)


def states_continue_with_other_ranks():
    pictures = whole()

    def ranks(world):
        samplers = [DistributedSampler(Indices(N), world, r, shuffle=True, seed=9) for r in range(world)]
        return [small(batch_size=4, sampler=s) for s in samplers]

    def interleave(loaders):
        each = [sum(ids_of(x, pictures), []) for x in loaders]
        return [i for group in zip(*each) for i in group]

    for first, second in [(a, b) for a in (1, 2, 4) for b in (1, 2, 4) if a != b] + [(2, 3)]:
        group, stop = ranks(first), random.randrange(1, -(-N // first) // 4)
        for loader in group:
            loader.set_epoch(2)
        complete = interleave(group)
        for loader in group:
            loader.set_epoch(2)
        its = [iter(x) for x in group]
        for it in its:
            for _ in range(stop):
                next(it)
        state = group[-1].state_dict()  # of any rank
        rest = complete[stop * 4 * first : N]  # what DistributedSampler repeats to make ranks equal is read once
        other = ranks(second)
        for loader in other:
            loader.load_state_dict(state)
        have = interleave(other)
        assert have[: len(rest)] == rest and len(have) - len(rest) < second, (first, second, stop)


def randomness_depends_on_seed_epoch_and_sample_alone():
    if torchvision is None:
        return
    t = T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor()])

    def epoch(e, threads, batch, seed=1):
        loader = DataLoader(ROOT, batch, num_workers=threads, transform=t, seed=seed)
        loader.set_epoch(e)
        return torch.cat([x for x, _ in loader])

    base = epoch(1, 1, 8)
    assert torch.equal(base, epoch(1, 3, 13))
    assert not torch.equal(base, epoch(2, 1, 8)) and not torch.equal(base, epoch(1, 1, 8, seed=2))


def compare(transform, exact, picture_root=ROOT, tolerance=0.0):
    data = ImageFolder(picture_root, transform)
    ours = DataLoader(data, 10, num_workers=2)
    assert ours.native, ours.reason
    for (x, y), (u, v) in zip(ours, torch.utils.data.DataLoader(data, 10)):
        assert torch.equal(y, v) and x.dtype == u.dtype and x.shape == u.shape
        if exact:
            assert torch.equal(x, u), transform
        else:
            assert (x.float() - u.float()).abs().mean() <= tolerance, ((x.float() - u.float()).abs().mean(), transform)


def pictures_are_torchvisions():
    if torchvision is None:
        return
    normalise = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    for crop in ((37, 41), 60, 1):
        compare(T.Compose([T.CenterCrop(crop), T.ToTensor()]), True)
        compare(T.Compose([T.CenterCrop(crop), T.PILToTensor()]), True)
        compare(T.Compose([T.CenterCrop(crop), T.RandomHorizontalFlip(1), T.ToTensor(), normalise]), True)
    for resize in (24, 57, 120, (33, 90)):
        compare(T.Compose([T.Resize(resize), T.ToTensor()]), False, tolerance=1 / 255)
        compare(T.Compose([T.Resize(resize), T.CenterCrop(21), T.PILToTensor()]), False, tolerance=1)
    for mode in ("bicubic", "nearest", "box", "hamming", "lanczos"):
        for resize in (24, 120, (33, 90)):
            last = T.PILToTensor() if mode == "nearest" else T.ToTensor()
            compare(T.Compose([T.Resize(resize, T.InterpolationMode(mode)), T.CenterCrop(21), last]), mode == "nearest", tolerance=1 / 255)
    # One crop only: the same pixels whatever is drawn.
    full = T.RandomResizedCrop(40, scale=(1, 1), ratio=(80 / 60, 80 / 60))
    compare(T.Compose([full, T.ToTensor()]), False, tolerance=1 / 255)
    try:
        from torchvision.transforms import v2
    except ImportError:
        return
    chain = [v2.Resize(40, antialias=True), v2.CenterCrop(32), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]
    compare(v2.Compose(chain), False, tolerance=1 / 255)
    for first in (v2.ToImage(), v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]), T.ToTensor()):
        for size in (24, 150):
            chain = [first, v2.Resize(size, v2.InterpolationMode.BICUBIC, antialias=True), v2.CenterCrop(20)]
            compare(v2.Compose(chain + [v2.ToDtype(torch.float32, scale=True)]), False, tolerance=0.7 / 255)
    if hasattr(v2, "RGB"):
        compare(v2.Compose([v2.RGB(), v2.CenterCrop(33), v2.ToImage()]), True)
    compare(v2.Compose([v2.CenterCrop(33), v2.PILToTensor(), v2.ToDtype(torch.float32, scale=True)]), False, tolerance=1e-7)
    compare(torchvision.models.ResNet18_Weights.DEFAULT.transforms(crop_size=40, resize_size=50), False, tolerance=5 / 255)


def padded_crops_are_torchvisions():
    if torchvision is None:
        return
    normalise = T.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    for crop in (90, (61, 81), (59, 95), (70, 30)):  # pictures have 60 x 80
        compare(T.Compose([T.CenterCrop(crop), T.ToTensor(), normalise]), True)
        compare(T.Compose([T.CenterCrop(crop), T.RandomHorizontalFlip(1), T.PILToTensor()]), True)
    # One place only.
    compare(T.Compose([T.RandomCrop((68, 88), padding=4), T.RandomHorizontalFlip(1), T.ToTensor()]), True)
    compare(T.Compose([T.RandomCrop((66, 84), padding=(1, 2, 3, 4), fill=(9, 130, 255)), T.ToTensor(), normalise]), True)
    compare(T.Compose([T.Resize((30, 40)), T.RandomCrop((34, 46), padding=[3, 2]), T.ToTensor()]), False, tolerance=1 / 255)
    # Any place: all of them occur, and outside the picture is the fill.
    chain = T.Compose([T.RandomCrop((60, 80), padding=2, fill=7), T.PILToTensor()])
    plain = [x for x, _ in small(transform=T.Compose([T.CenterCrop((60, 80)), T.PILToTensor()]))]
    places = set()
    for loader in [small(transform=chain, seed=5)] * 3:
        for (x, _), whole in zip(loader, plain):
            for one, picture in zip(x, whole):
                framed = torch.full((3, 64, 84), 7, dtype=torch.uint8)
                framed[:, 2:62, 2:82] = picture
                here = [(i, k) for i in range(5) for k in range(5) if torch.equal(framed[:, i : i + 60, k : k + 80], one)]
                assert here
                places.update(here[:1])
    assert len(places) == 25, len(places)
    grown = DataLoader(ROOT, 5, transform=T.Compose([T.RandomCrop(100, pad_if_needed=True), T.ToTensor()]))
    assert next(iter(grown))[0].shape == (5, 3, 100, 100)
    for bad in (T.RandomCrop(30, padding=30), T.RandomCrop(30, padding=4, padding_mode="reflect")):
        raises(NotImplementedError, "RandomCrop", DataLoader, ROOT, 5, transform=T.Compose([bad, T.ToTensor()]))


def odd_pictures_are_torchvisions():
    """Grey, CMYK, progressive, rotated by EXIF, a PNG with alpha and one with a JPEG's name."""
    if torchvision is None:
        return
    from PIL import Image

    root = os.path.join(os.path.dirname(os.path.dirname(ROOT)), "odd")
    os.makedirs(os.path.join(root, "a"))
    base = Image.effect_noise((64, 48), 80)
    colour = Image.merge("RGB", [Image.effect_noise((64, 48), s) for s in (30, 60, 90)])
    exif = Image.Exif()
    exif[0x0112] = 6
    base.save(f"{root}/a/grey.jpg")
    colour.convert("CMYK").save(f"{root}/a/cmyk.jpg")
    colour.save(f"{root}/a/progressive.jpg", progressive=True)
    colour.save(f"{root}/a/rotated.jpg", exif=exif)
    colour.save(f"{root}/a/fine.jpg", quality=95, subsampling=0)
    colour.save(f"{root}/a/plain.png")
    base.save(f"{root}/a/grey.png")
    colour.convert("RGBA").save(f"{root}/a/alpha.png")
    colour.save(f"{root}/a/png.jpg", format="PNG")
    compare(T.Compose([T.CenterCrop((40, 50)), T.PILToTensor()]), False, root, tolerance=0.02)
    compare(T.Compose([T.Resize(30), T.CenterCrop(20), T.ToTensor()]), False, root, tolerance=1 / 255)


def what_is_not_known_is_called():
    if torchvision is None:
        return
    jitter = T.Compose([T.ColorJitter(), T.ToTensor()])
    for data, why in ((ImageFolder(ROOT, jitter), "ColorJitter"), (Indices(20), "Indices")):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            loader = DataLoader(data, 4, shuffle=True, generator=torch.Generator().manual_seed(1))
        assert not loader.native and why in loader.reason and len(said) == 1 and why in str(said[0].message)
    theirs = torch.utils.data.DataLoader(Indices(20), 4, shuffle=True, generator=torch.Generator().manual_seed(1))
    for _ in range(3):
        assert [b.tolist() for b in loader] == [b.tolist() for b in theirs]
    it = iter(loader)
    next(it), next(it)
    state, rest = loader.state_dict(), [b.tolist() for b in it]
    loader.load_state_dict(state)
    assert [b.tolist() for b in loader] == rest


def loaders_work_side_by_side():
    """Training with validation in the middle of an epoch, and a called one beside both: each keeps its own order and state."""
    pictures = whole()
    train, val = small(shuffle=True, generator=torch.Generator().manual_seed(1)), small(batch_size=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        called = DataLoader(Indices(30), 3, shuffle=True, generator=torch.Generator().manual_seed(2), workers="threads", num_workers=2)
    want = [ids_of(train, pictures) for _ in range(2)]
    train = small(shuffle=True, generator=torch.Generator().manual_seed(1))
    for epoch in range(2):
        have, others = [], iter(called)
        for k, batch in enumerate(train):
            have += ids_of([batch], pictures)
            next(others, None)
            if k in (3, 9):
                assert sum(ids_of(val, pictures), []) == list(range(N))
        assert have == want[epoch]


def epochs_end_in_a_zip():
    """A loader of which every batch was taken has ended its epoch, also when nobody asked for more."""
    if torchvision is None:
        return
    t = T.Compose([T.RandomResizedCrop(32), T.ToTensor()])
    one, two = small(transform=t, seed=1), small(transform=t, seed=1)
    for _ in range(3):
        for (x, _), (u, _) in zip(one, two):
            assert torch.equal(x, u)


def tiers_keep_the_order():
    """With tiers the order is DistributedSampler's, for one rank or several; bytes come from memory after the first epoch."""
    pictures = whole()
    ours, theirs = small(shuffle=True, seed=4, tiers="ram=64MiB", epochs=3), DistributedSampler(Indices(N), 1, 0, shuffle=True, seed=4)
    for epoch in range(3):
        theirs.set_epoch(epoch)
        assert sum(ids_of(ours, pictures), []) == list(theirs)
    told = ours.stats()["tiers"]
    assert told["source"]["samples"] == N and told["ram"]["samples"] == 2 * N, told
    assert "tiers ram=64MiB" in repr(ours)
    disk = os.path.join(folder, "kept")
    on_disk = small(tiers=f"ram=1MiB,ssd={disk}:64MiB", epochs=1)
    list(on_disk)
    del on_disk
    kept = json.loads(subprocess.run([MILLRACE, "cache", "ls", disk, "--json"], check=True, capture_output=True).stdout)
    assert kept["data_sets"][0]["name"] == os.path.realpath(ROOT), kept  # not its manifest, which has no name
    assert sum(ids_of(small(tiers="ram=64MiB", policy="millrace"), pictures), []) == list(range(N))
    it = iter(again := small(shuffle=True, seed=4, tiers="ram=64MiB"))
    next(it), next(it)
    state, rest = again.state_dict(), ids_of(it, pictures)
    two = small(shuffle=True, seed=4, tiers="ram=64MiB")
    two.load_state_dict(state)
    assert ids_of(two, pictures) == rest
    it = iter(two)
    raises(RuntimeError, "one iteration at a time", iter, two)
    del it
    # A state of three ranks, continued by one; and that one's, continued again.
    theirs.set_epoch(0)
    order, three = list(theirs), small(batch_size=4, seed=4, sampler=DistributedSampler(Indices(N), 3, 1, shuffle=True, seed=4))
    next(iter(three))
    one, last = small(batch_size=5, seed=4, shuffle=True, tiers="ram=64MiB"), small(batch_size=5, seed=4, shuffle=True, tiers="ram=64MiB")
    one.load_state_dict(three.state_dict())
    it = iter(one)
    head = ids_of([next(it)], pictures)
    last.load_state_dict(one.state_dict())
    rest = ids_of(it, pictures)
    assert sum(head + rest, []) == order[12:] and ids_of(last, pictures) == rest, (order, head, rest)
    theirs.set_epoch(1)
    assert sum(ids_of(last, pictures), []) == list(theirs)
    raises(NotImplementedError, "function of seed and epoch", small, sampler=[1, 2], tiers="auto")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raises(NotImplementedError, "read natively", DataLoader, Indices(4), tiers="auto")


def shards_of_pictures_are_native():
    """JPEG files inside of tar shards, as WebDataset has them, are decoded like files; what is broken names its shard."""
    if torchvision is None:
        return
    import io
    import subprocess
    import tarfile

    from front_end import MILLRACE

    shards = os.path.join(os.path.dirname(os.path.dirname(ROOT)), "shards")
    os.makedirs(shards)
    files = ImageFolder(ROOT).samples
    for s in range(3):
        with tarfile.open(f"{shards}/{s}.tar", "w") as tar:
            for i, (path, label) in list(enumerate(files))[s * 40 : s * 40 + 40]:
                tar.add(path, f"{i:06d}.jpg")
                info = tarfile.TarInfo(f"{i:06d}.cls")
                info.size = 1
                tar.addfile(info, io.BytesIO(str(label).encode()))
    subprocess.run([MILLRACE, "-q", "scan", shards], check=True)
    for t in (T.Compose([T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ToTensor()]), T.Compose([T.CenterCrop((37, 41)), T.PILToTensor()])):
        one, two = small(transform=t, seed=3), small(shards, transform=t, seed=3)
        count = 0
        for (x, y), (u, v) in zip(one, two):
            assert torch.equal(x, u) and torch.equal(y, v)
            count += len(x)
        assert count == N
    with open(f"{shards}/1.tar", "r+b") as f:
        f.seek(512 + os.path.getsize(files[40][0]) // 2)
        f.write(bytes([255, 217]) * 200)
    raises(millrace.DataError, "1.tar", list, small(shards, transform=t))


def subsets_are_native():
    if torchvision is None:
        return
    t = T.Compose([T.CenterCrop(32), T.ToTensor()])
    parts = torch.utils.data.random_split(ImageFolder(ROOT, t), [71, 30], torch.Generator().manual_seed(0))
    assert DataLoader(parts[1], 7, collate_fn=list).native == "in part"
    ours = DataLoader(parts[1], 7, collate_fn=torch.utils.data.default_collate)
    assert ours.native
    for (x, y), (u, v) in zip(ours, torch.utils.data.DataLoader(parts[1], 7)):
        assert torch.equal(x, u) and torch.equal(y, v)


def joined_sets_are_native():
    if torchvision is None:
        return
    from torch.utils.data import ConcatDataset, Subset

    t = T.Compose([T.CenterCrop(32), T.ToTensor()])
    other = plain_pictures("other", "--files", "20", "--dims", "60x80x3", "--subfolders", "2")
    one, two = ImageFolder(ROOT, t), ImageFolder(other, t)
    both = ConcatDataset([Subset(one, [5, 3, 90]), two, Subset(one, range(40, 60)), Subset(two, [0, 0])])
    for data in (both, Subset(both, [44, 0, 1, 30, 7, 44])):
        ours = DataLoader(data, 7)
        assert ours.native, ours.reason
        for (x, y), (u, v) in zip(ours, torch.utils.data.DataLoader(data, 7)):
            assert torch.equal(x, u) and torch.equal(y, v)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mixed = DataLoader(ConcatDataset([one, ImageFolder(other, T.ToTensor())]), 4)
    assert not mixed.native and "different transforms" in mixed.reason


def tokens_are_native():
    from array import array

    for kind, code, top in (("uint16", "H", 1 << 16), ("uint32", "I", 1 << 32)):
        path = os.path.join(os.path.dirname(os.path.dirname(ROOT)), f"{kind}.bin")
        rng = random.Random(3)
        values = [rng.randrange(top) for _ in range(1003)]
        with open(path, "wb") as f:
            array(code, values).tofile(f)
        all_tokens = torch.tensor(values)
        data = Tokens(path, 16, kind)
        assert len(data) == 62 and torch.equal(data[61][1], all_tokens[61 * 16 + 1 : 62 * 16 + 1])
        for d in (data, Tokens(path, 16, kind, step=5), Tokens(path, 32, kind, targets=False), torch.utils.data.Subset(data, [9, 9, 3, 60])):
            g = [torch.Generator().manual_seed(5) for _ in "12"]
            ours = DataLoader(d, 8, shuffle=True, generator=g[0])
            assert ours.native, ours.reason
            for _ in range(2):
                pairs = list(zip(ours, torch.utils.data.DataLoader(d, 8, shuffle=True, generator=g[1])))
                assert len(pairs) == len(ours)
                for have, want in pairs:
                    have, want = (have, want) if isinstance(have, list) else ([have], [want])
                    assert len(have) == len(want) and all(a.dtype == torch.int64 and torch.equal(a, b) for a, b in zip(have, want))
    raises(ValueError, "less than one sample", Tokens, path, 5000, "uint32")
    raises(ValueError, "dtype is", Tokens, path, 5, "int8")
    raises(ValueError, "millrace.torch.Tokens", DataLoader, path)
    raises(FileNotFoundError, "nowhere", Tokens, "/nowhere", 5)
    headers_of_token_files()
    loader = DataLoader(data, 8)
    os.truncate(path, 400)
    raises(millrace.DataError, "uint32.bin", list, loader)


def headers_of_token_files():
    """llm.c's and numpy's headers are no tokens; other files with headers are refused."""
    from array import array

    values = list(range(100, 400))

    def write(name, header, code):
        path = os.path.join(folder, name)
        with open(path, "wb") as f:
            f.write(header)
            array(code, values).tofile(f)
        return path

    def npy(descr, shape=(300,)):
        text = repr({"descr": descr, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
        return b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text.encode()

    def llm_c(magic, count=300):
        return array("i", [magic, 1, count] + 253 * [0]).tobytes()

    for name, header, code, kind in (("a.npy", npy("<u2"), "H", "uint16"), ("b.npy", npy("<u4"), "I", "uint32"),
                                     ("c.bin", llm_c(20240520), "H", "uint16"), ("d.bin", llm_c(20240801), "I", "uint32")):
        path = write(name, header, code)
        data = Tokens(path, 10, kind, targets=False)
        assert len(data) == 30 and data[0].tolist() == values[:10] and data[29].tolist() == values[290:], name
        loader = DataLoader(data, 1)
        assert loader.native and [b[0].tolist() for b in loader] == [values[k : k + 10] for k in range(0, 300, 10)], name
        raises(ValueError, f'pass dtype="{kind}"', Tokens, path, 10, "uint32" if kind == "uint16" else "uint16")
    raises(ValueError, "tofile", Tokens, write("e.npy", npy("<i8"), "Q"), 10)
    raises(ValueError, "2 dimensions", Tokens, write("f.npy", npy("<u2", (30, 10)), "H"), 10)
    raises(ValueError, "cannot be read", Tokens, write("g.npy", b"\x93NUMPY\x01\0" + 60 * b"(", "H"), 10)
    raises(ValueError, "for 299 tokens", Tokens, write("h.bin", llm_c(20240520, 299), "H"), 10)
    raises(ValueError, "ZIP", Tokens, write("i.bin", b"PK\x03\x04", "H"), 10)


def environment_makes_ranks():
    pictures = whole()
    try:
        for world, rank in ((2, 0), (3, 2)):
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                ours, second = small(shuffle=True), small()
            assert len(said) == (1 if world == 2 else 0) and (world != 2 or "rank 0 of 2" in str(said[0].message))
            theirs = DistributedSampler(Indices(N), world, rank, shuffle=True)
            for epoch in range(2):  # nobody calls set_epoch
                theirs.set_epoch(epoch)
                assert sum(ids_of(ours, pictures), []) == list(theirs)
            assert f"rank {rank} of {world}" in repr(ours)
            assert sum(ids_of(second, pictures), []) == list(DistributedSampler(Indices(N), world, rank, shuffle=False))
            assert len(small(distributed=False)) == 13
    finally:
        del os.environ["RANK"], os.environ["WORLD_SIZE"]
    nobody = small(distributed=True)  # a process group may come later
    for begin in (len, iter):
        raises(ValueError, "RANK and WORLD_SIZE", begin, nobody)


def waits_are_told():
    import time

    class Slow(Indices):
        def __getitem__(self, i):
            time.sleep(0.003)
            return i

    for slow, data, text in ((True, Slow(40), "own code"), (True, NUMBERS, ""), (False, NUMBERS, None)):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            loader = DataLoader(data, 2, warn_after=0.02 if slow else 60.0)
            real = loader._watch.look

            def look(now, counters, watch=loader._watch, real=real):
                watch.waited += 1.0
                real(now, counters)

            loader._watch.look = look
            for _ in range(2):
                for _ in loader:
                    time.sleep(0.001)
        told = [str(w.message) for w in said if "waited" in str(w.message)]
        assert len(told) == (1 if slow else 0) and (not text or text in told[0]), told
    stats = loader.stats()
    assert stats["native"] and stats["samples"] == 206 and stats["waited_s"] > 0 and stats["limiter"] and stats["epoch"] == 2
    assert "103 samples, 52 batches of 2, epoch 2, native" in repr(loader) and "\n" not in repr(loader)


def data_sets_with_a_manifest():
    loader = DataLoader(NUMBERS, 10, shuffle=True, generator=torch.Generator().manual_seed(2))
    batches = list(loader)  # keeps more of them than the loader has room for
    assert len(batches) == 11 and all(x.dtype == torch.float32 and x.shape[1:] == (5, 3) for x, _ in batches)
    order = torch.randperm(103, generator=_seeded(2))
    assert torch.cat([y for _, y in batches]).shape == order.shape
    again = DataLoader(NUMBERS, 103)
    x, y = next(iter(again))
    data, labels = torch.cat([b for b, _ in batches]), torch.cat([b for _, b in batches])
    assert torch.equal(data.view(torch.int32), x[order].view(torch.int32)) and torch.equal(labels, y[order])  # has NaNs
    batches[0][0].fill_(7)  # writable


def _seeded(seed):
    g = torch.Generator().manual_seed(seed)
    torch.empty((), dtype=torch.int64).random_(generator=g)
    return g


def errors_are_of_the_right_kind():
    raises(FileNotFoundError, "no such data set", DataLoader, "/nowhere")
    empty = os.path.join(os.path.dirname(os.path.dirname(ROOT)), "empty")
    os.makedirs(os.path.join(empty, "class"), exist_ok=True)
    raises(FileNotFoundError, "no pictures in", DataLoader, empty)
    for more, text in (({"batch_size": 2.5}, "2.5"), ({"timeout": -1}, "timeout"), ({"prefetch_factor": 0}, "prefetch_factor")):
        raises(ValueError, text, DataLoader, ROOT, **more)
    raises(ValueError, "batch_size", DataLoader, ROOT, 0)
    raises(ValueError, "larger than the 101 samples", iter, DataLoader(ROOT, 200, drop_last=True))
    raises(ValueError, "on_error", DataLoader, ROOT, on_error="no")
    bad = plain_pictures("bad", "--files", "20", "--dims", "60x80x3", "--subfolders", "2")
    victims = sorted(os.path.join(d, f) for d, _, fs in os.walk(bad) for f in fs)
    with open(victims[7], "r+b") as f:
        f.truncate(300)
    if torchvision is None:
        return
    t = T.Compose([T.CenterCrop(32), T.ToTensor()])
    it = iter(DataLoader(bad, 5, transform=t))
    next(it)
    e = raises(millrace.DataError, os.path.basename(victims[7]), next, it)
    assert isinstance(e, OSError) and "in sample 7 of" in str(e)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        loader = DataLoader(bad, 5, transform=t, on_error="skip")
        sizes = [len(x) for x, _ in loader]
    assert sizes == [5, 4, 5, 5] and loader.skipped == 1 and os.path.basename(victims[7]) in str(said[-1].message), [str(w.message) for w in said]
    from PIL import Image

    deep = os.path.join(os.path.dirname(os.path.dirname(ROOT)), "deep")
    os.makedirs(os.path.join(deep, "a"))
    Image.new("I;16", (40, 40)).save(f"{deep}/a/deep.png")
    raises(ValueError, "16 bits", next, iter(DataLoader(deep, 1, transform=t)))
    raises(ValueError, "the crop has 90 x 90", next, iter(DataLoader(ROOT, 5, transform=T.Compose([T.RandomCrop(90), T.ToTensor()]))))


def folders_with_other_files():
    """Pictures that are not decoded are an error, empty classes a warning; a transform that is changed is noticed."""
    root = plain_pictures("mixed", "--files", "6", "--dims", "60x80x3", "--subfolders", "2")
    os.makedirs(os.path.join(root, "zz"))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        loader = DataLoader(root, 3)
    assert len(said) == 1 and "zz" in str(said[0].message) and loader.classes[-1] == "zz"
    open(os.path.join(root, "zz", "notes.txt"), "w").close()
    DataLoader(root, 3, warn_after=0)
    open(os.path.join(root, "zz", "a.bmp"), "w").close()
    raises(NotImplementedError, "a.bmp", DataLoader, root, 3)
    if torchvision is None:
        return
    data = ImageFolder(ROOT, T.Compose([T.CenterCrop(32), T.ToTensor()]))
    loader = DataLoader(torch.utils.data.Subset(data, [1, 2, 3]), 3)
    list(loader)
    data.transform = T.Compose([T.CenterCrop(30), T.ToTensor()])
    raises(RuntimeError, "changed", iter, loader)
    assert next(iter(DataLoader(data, 3)))[0].shape[-1] == 30


def changes_are_noticed():
    """Files that vanish, shrink or become something else between construction and reading; more memory than there is."""
    root = plain_pictures("changing", "--files", "12", "--dims", "60x80x3", "--subfolders", "2")
    files = sorted(os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs)
    for damage, kind in ((os.unlink, FileNotFoundError), (lambda path: os.truncate(path, 10), millrace.DataError), (shorten, OSError)):
        loader = DataLoader(root, 4)  # one that has read an epoch may have begun the next
        with open(files[5], "rb") as f:
            before = f.read()
        loader = DataLoader(root, 4)
        damage(files[5])
        raises(kind, os.path.basename(files[5]), list, loader)
        with open(files[5], "wb") as f:
            f.write(before)
        assert len(list(loader)) == 3  # and it goes on
    raises(MemoryError, "", DataLoader, root, 1 << 30, prefetch_factor=1 << 20)
    large = os.path.join(os.path.dirname(root), "large.bin")
    with open(large, "wb") as f:
        f.truncate(8 << 40)  # a file of holes: its samples have more bytes than any machine's memory
    raises(MemoryError, "batches of 1024 samples: they need", DataLoader, Tokens(large, 1 << 30, "uint32", targets=False), 1024)
    os.unlink(large)


def shorten(path):
    with open(path, "wb") as f:
        f.write(b"no picture at all" * 9)


def interrupts_arrive():
    """Ctrl-C ends a wait for storage that does not answer, and the process, at once."""
    import subprocess
    import time

    text = f"""
import sys, threading, os, signal
sys.path.insert(0, {os.path.join(BINARY, "python")!r})
from millrace.numpy import Loader
loader = Loader({NUMBERS!r}, 4, threads=2, store="fault(op=read,path=*.npz,every=1,slow=100s):posix")
threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    next(iter(loader))
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(0)
"""
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.stdout == "interrupted\n", done.stdout + done.stderr
    assert time.monotonic() - begin < 50


def resident_bytes():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ends_cleanly():
    """Iterators side by side, abandoned ones, many loaders, exceptions in the loop, tensors that outlive their loader, a fork."""
    pictures = whole()
    both = small()
    assert [len(a[1]) + len(b[1]) for a, b in zip(both, both)] == [16] * 12 + [10]
    for _ in range(3):
        next(iter(both))
    assert sum(ids_of(both, pictures), []) == list(range(N))
    both.close()
    gc.collect()
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    tasks = len(os.listdir("/proc/self/task"))
    left = [f for f in os.listdir("/dev/shm") if f.startswith(f"millrace-{os.getpid()}-")]
    kept, full = [], os.environ.get("MR_TEST_FULL")
    for i in range(1000 if full else 25):
        loader = small(shuffle=True)
        it = iter(loader)
        kept = [next(it), next(it)]
        if i == (300 if full else 12):
            gc.collect()
            resident = resident_bytes()
        if i % (10 if full else 3) == 0:
            try:
                for _ in loader:
                    raise KeyError
            except KeyError:
                pass
    del loader, it
    gc.collect()
    assert len(kept[0][1]) == 8 and rows_of(kept[0][0])[0].float().sum() > 0
    assert threading.active_count() <= threads and len(os.listdir("/proc/self/fd")) <= files
    assert resident_bytes() < resident + (32 << 20), (resident, resident_bytes())
    assert len(os.listdir("/proc/self/task")) <= tasks
    assert left == [f for f in os.listdir("/dev/shm") if f.startswith(f"millrace-{os.getpid()}-")]
    parent = small()
    it = iter(parent)
    next(it)
    pid = os.fork()
    if pid == 0:
        try:
            next(it)
        except RuntimeError as e:
            os._exit(0 if "fork" in str(e) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    next(it)


run([
    order_is_torchs_over_epochs, order_is_torchs_when_epochs_are_given_up, order_is_that_of_any_sampler, global_random_numbers_are_left_alone, states_continue_exactly,
    states_continue_with_other_ranks, randomness_depends_on_seed_epoch_and_sample_alone, pictures_are_torchvisions,
    padded_crops_are_torchvisions, odd_pictures_are_torchvisions, what_is_not_known_is_called, subsets_are_native, joined_sets_are_native,
    tokens_are_native, environment_makes_ranks, waits_are_told, loaders_work_side_by_side, epochs_end_in_a_zip, tiers_keep_the_order, shards_of_pictures_are_native,
    data_sets_with_a_manifest, errors_are_of_the_right_kind, folders_with_other_files, changes_are_noticed,
    interrupts_arrive, ends_cleanly,
])  # fmt: skip
