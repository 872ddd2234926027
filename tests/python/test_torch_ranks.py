"""States of millrace.torch.DataLoader over numbers of ranks: whatever saved one, whoever loads it either reads what is left of the
epoch, each sample once and in the same order over all ranks, or refuses it in load_state_dict with the reason. Ranks are loaders of
this process, which are made and begin their epochs under their own RANK and WORLD_SIZE."""

import contextlib
import itertools
import json
import os
import pickle
import random
import sys
import types
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import folder, gen, raises, run, skip  # noqa: E402

try:
    import torch
    from torch.utils.data import (
        BatchSampler,
        RandomSampler,
        Sampler,
        SequentialSampler,
        SubsetRandomSampler,
        WeightedRandomSampler,
    )
    from torch.utils.data.distributed import DistributedSampler
except Exception as reason:
    skip(f"no PyTorch ({reason})")

from millrace import _ranks  # noqa: E402
from millrace.torch import DataLoader, Tokens  # noqa: E402

torch.set_num_threads(1)
warnings.simplefilter("ignore")
N = 53
FULL = bool(os.environ.get("MR_TEST_FULL"))
TOKENS = os.path.join(folder, "tokens.bin")
with open(TOKENS, "wb") as f:
    f.write(b"".join(i.to_bytes(2, "little") * 2 for i in range(N)))
try:
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import CenterCrop, Compose, ToTensor

    PICTURES = gen(
        "pictures", "--format", "jpeg", "--files", str(N), "--dims", "8x8x3", "--subfolders", str(N), "--labels", str(N)
    )
    os.unlink(os.path.join(PICTURES, "manifest.mrm"))
except Exception as reason:
    print(f"note: no torchvision ({reason}): nothing is native in part")
    PICTURES = None


class Indices(torch.utils.data.Dataset):
    def __len__(self):
        return N

    def __getitem__(self, i):
        return i


class Steps(Sampler):
    """A sampler of a program's: every third sample, from a place that depends on its epoch."""

    def __init__(self, start=0):
        self.start, self.epoch = start, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return N

    def __iter__(self):
        return iter([(self.start + self.epoch + 3 * i) % N for i in range(N)])


class Dice(Steps):
    """One whose order cannot be drawn again."""

    def __iter__(self):
        return iter(random.sample(range(N), N))


class Own(DistributedSampler):
    """A rank's sampler of a program's."""

    def __iter__(self):
        return iter(list(super().__iter__())[::-1])


class Pairs(BatchSampler):
    """A batch sampler of a program's."""

    def __iter__(self):
        return (batch[::-1] for batch in super().__iter__())


@contextlib.contextmanager
def rank(number, world):
    before = dict(os.environ)
    if world > 1:
        os.environ.update(RANK=str(number), WORLD_SIZE=str(world))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def data(mode):
    return {"native": lambda: Tokens(TOKENS, 2, "uint16", step=2, targets=False), "called": Indices,
            "in part": lambda: ImageFolder(PICTURES, Compose([CenterCrop(8), ToTensor()]))}[mode]()  # fmt: skip


def ids(mode, batch):
    if mode == "native":
        return batch[:, 0].tolist()
    return batch.tolist() if mode == "called" else batch[1].tolist()


def collate(rows):
    return torch.utils.data.default_collate(rows)


SAMPLERS = {
    "own shuffled": lambda r, w, seed: dict(shuffle=True),
    "own shuffled, generator": lambda r, w, seed: dict(shuffle=True, generator=torch.Generator().manual_seed(seed)),
    "own sequential": lambda r, w, seed: dict(),
    "distributed": lambda r, w, seed: dict(sampler=DistributedSampler(range(N), w, r, shuffle=True, seed=5)),
    "distributed, drops": lambda r, w, seed: dict(
        sampler=DistributedSampler(range(N), w, r, shuffle=True, seed=5, drop_last=True)
    ),
    "distributed, sequential": lambda r, w, seed: dict(sampler=DistributedSampler(range(N), w, r, shuffle=False)),
    "subset": lambda r, w, seed: dict(
        sampler=SubsetRandomSampler(range(N), generator=torch.Generator().manual_seed(seed))
    ),
    "weighted": lambda r, w, seed: dict(
        sampler=WeightedRandomSampler([1.0] * N, N, generator=torch.Generator().manual_seed(seed))
    ),
    "replacing": lambda r, w, seed: dict(sampler=RandomSampler(range(N), replacement=True, num_samples=N)),
    "foreign": lambda r, w, seed: dict(sampler=Steps(3)),
    "foreign of ranks": lambda r, w, seed: dict(sampler=Own(range(N), w, r, shuffle=True, seed=3)),
    "foreign, by chance": lambda r, w, seed: dict(sampler=Dice()),
    "batches": lambda r, w, seed: dict(batch_sampler=Pairs(SequentialSampler(range(N)), 4, False)),
}
KNOWN = tuple(SAMPLERS)[:6]
WORLDS = (1, 2, 3, 4, 8)


class Group:
    """Loaders of all ranks."""

    def __init__(self, mode, kind, world, size, seed):
        torch.manual_seed(seed)  # as another process, in which nobody gave a seed
        self.mode, self.world, self.loaders = mode, world, []
        for r in range(world):
            more = SAMPLERS[kind](r, world, seed)
            if "batch_sampler" not in more:
                more.update(batch_size=size)
            more.update(collate_fn=collate if mode == "in part" else None, warn_after=0)
            with rank(r, world):
                self.loaders.append(DataLoader(data(mode), num_workers=1 if mode == "native" else 0, **more))
        assert self.loaders[0].native == {"native": True, "called": False}.get(mode, mode) or "batch_sampler" in more, (
            self.loaders[0].reason
        )

    def begin(self):
        out = []
        for r, loader in enumerate(self.loaders):
            with rank(r, self.world):
                out.append(iter(loader))
        return out

    def take(self, its, batches=1 << 30):
        """What all ranks together read, in the order of the epoch."""
        each = []
        for it in its:
            each.append([])
            for _ in range(batches):
                batch = next(it, None)
                if batch is None:
                    break
                each[-1] += ids(self.mode, batch)
        assert len({len(one) for one in each}) == 1, each
        return [i for row in zip(*each) for i in row]

    def load(self, states):
        """Why not; None: all ranks go on."""
        errors = []
        for r, loader in enumerate(self.loaders):
            with rank(r, self.world):
                try:
                    loader.load_state_dict(states[r % len(states)])
                except ValueError as why:
                    errors.append(str(why))
        assert len(errors) in (0, self.world), errors
        return errors[0] if errors else None

    def states(self):
        return [json.loads(json.dumps(loader.state_dict())) for loader in self.loaders]

    def close(self):
        for loader in self.loaders:
            loader.close()


def whole(kind, order):
    """An epoch without the samples that ranks repeat to be equal."""
    return order if kind in ("replacing", "weighted") else order[:N]


def hop(draw, mode, first, second, kind, other, sizes):
    """Saves after some batches of `first` ranks, loads with `second`; then once more."""
    one = Group(mode, kind, first, sizes[0], draw.randrange(1000))
    for _ in range(draw.randrange(3)):
        one.take(one.begin())
    its = one.begin()
    longest = -(-(N // first if "drops" in kind else -(-N // first)) // sizes[0])
    head = one.take(its, draw.randrange(longest + 1))
    states = one.states()
    order = head + one.take(its)
    drops = any("drops" in name for name in (kind, other))
    if kind == "distributed, drops":  # what it left out of the epoch is there for others
        alone = DistributedSampler(range(N), 1, 0, shuffle=True, seed=5)
        alone.set_epoch(states[0]["order"]["epoch"])
        order = list(alone)
    rest = whole(kind, order)[len(head) :]
    one.close()
    case = (mode, first, second, kind, other, sizes, len(head))

    def check(have, world):
        """These ranks read what is left, made equally long."""
        n = min(len(have), len(rest))
        missing, more = len(rest) - n, len(have) - n
        assert (
            have[:n] == rest[:n] and missing < (max(first, second, world) if drops else 1) and more < max(second, world)
        ), (case, have, rest)

    two = Group(mode, other, second, sizes[1], draw.randrange(1000))
    why = two.load(states if kind == "foreign of ranks" else [draw.choice(states)])
    if why is not None:
        two.close()
        return why
    its = two.begin()
    have = two.take(its, draw.randrange(3))
    states = two.states()
    check(have + two.take(its), second)
    world = draw.choice(WORLDS) if other in KNOWN else second
    third = Group(mode, other, world, draw.choice(sizes) if other in KNOWN else sizes[1], draw.randrange(1000))
    size = third.loaders[0].batch_size
    why = third.load(states if other == "foreign of ranks" else [draw.choice(states)])
    assert why is None or world == second and size != sizes[1] and "batch_size" in why, (case, why)
    if why is None:
        check(have + (third.take(third.begin()) if states[0]["in_epoch"] else []), world)
        later = third.take(third.begin())
        assert len(set(later)) == N or drops or other in ("replacing", "weighted"), (case, later)
    two.close()
    third.close()
    return None


def modes():
    return ("native", "called", "in part") if PICTURES else ("native", "called")


def states_continue_or_are_refused():
    """Every pair of numbers of ranks; modes, samplers and batch sizes by chance."""
    draw = random.Random(1)
    for first in WORLDS:
        for second in WORLDS:
            for trial in range(24 if FULL else 2):
                mode = draw.choice(modes())
                kind = draw.choice(KNOWN)
                alike = [k for k in KNOWN if ("sequential" in k) == ("sequential" in kind)]
                sizes = draw.choice(((4, 4), (4, 4), (5, 2), (1, 7)))
                other = draw.choice(alike)
                why = hop(draw, mode, first, second, kind, other, sizes)
                other_seed = first > 1 and "own shuffled" in kind and "distributed" in other  # 0 and 5
                other_size = first == second and sizes[0] != sizes[1]
                assert (why is not None) == (other_seed or other_size), (why, mode, first, second, kind, other, sizes)
                assert why is None or ("batch_size" if other_size else "seed") in why, why


def samplers_of_programs_continue_with_as_many_ranks():
    draw = random.Random(2)
    for kind in tuple(SAMPLERS)[6:]:
        for mode in modes() if FULL else ("called",):
            if kind == "batches" and mode == "native":
                continue  # called in part
            ranks = 3 if kind == "foreign of ranks" else 1
            why = hop(draw, mode, ranks, ranks, kind, kind, (4, 4))
            if kind == "foreign, by chance":
                assert "gives other samples here" in why, why
            else:
                assert why is None, (kind, why)
    for first, second, kind, other in ((1, 2, "foreign", "foreign"), (2, 1, "foreign of ranks", "foreign of ranks"), (1, 1, "foreign", "own shuffled"),
                                       (1, 2, "own shuffled", "foreign"), (1, 1, "own shuffled", "own sequential"), (1, 1, "own shuffled", "replacing")):  # fmt: skip
        why = hop(draw, "called", first, second, kind, other, (4, 4))
        assert why is not None and ("'" in why or "sequential" in why or "replacement" in why), (
            first,
            second,
            kind,
            other,
            why,
        )


def states_carry_their_seed():
    """A program without a seed goes on with the very crops, as one process, as ranks, with tiers; one with another seed is refused."""
    if not PICTURES:
        return
    from torchvision.transforms import ColorJitter, RandomResizedCrop

    def make(r=0, world=1, **more):
        rest = [ColorJitter(0.5)] if more.pop("jitter", False) else []
        with rank(r, world):
            return DataLoader(ImageFolder(PICTURES, Compose([RandomResizedCrop(8), *rest, ToTensor()])), 4, shuffle=True, num_workers=1, **more)

    def read(loader, r, world):
        with rank(r, world):
            return list(loader)

    for world, more in ((1, {}), (1, {"jitter": True}), (2, {}), (1, {"tiers": "ram=4MiB"})):
        torch.manual_seed(1)
        one = make(0, world, **more)
        with rank(0, world):
            it = iter(one)
        next(it)
        state = json.loads(json.dumps(one.state_dict()))
        rest = list(it)
        one.close()
        torch.manual_seed(2)
        two = make(0, world, **more)
        with rank(0, world):
            two.load_state_dict(state)
        have = read(two, 0, world)
        assert len(have) == len(rest) and all(torch.equal(a, b) and torch.equal(c, d) for (a, c), (b, d) in zip(have, rest)), (world, more)
        two.close()
        if world == 1 and not more:
            raises(ValueError, "another run: seed", make(seed=7).load_state_dict, state)
    between = make(generator=torch.Generator().manual_seed(3))
    list(between)
    state = json.loads(json.dumps(between.state_dict()))  # between epochs: a private generator goes on, too
    again = make(generator=torch.Generator().manual_seed(3))
    again.load_state_dict(state)
    assert [y.tolist() for _, y in again] == [y.tolist() for _, y in between]


def loaders_travel_in_pickles():
    """A loader arrives in a spawned process where it was, with its order and crops; what cannot travel is named."""
    for more in ({}, dict(generator=torch.Generator().manual_seed(3)), dict(seed=9)):
        for mode in modes():
            loader = DataLoader(data(mode), 4, shuffle=True, num_workers=int(mode == "native"), **more)
            for batches in (0, 3):
                it = iter(loader)
                for _ in range(batches):
                    next(it)
                if more or batches:  # else the order is drawn from torch's global generator
                    copy = pickle.loads(pickle.dumps(loader))
                    assert copy.seed == loader.seed and [ids(mode, b) for b in copy] == [ids(mode, b) for b in it]
    raises(TypeError, "its collate_fn: ", pickle.dumps, DataLoader(Indices(), 4, collate_fn=lambda rows: rows))
    raises(TypeError, "an iteration cannot be pickled", pickle.dumps, iter(loader))
    from millrace.numpy import Loader

    numbers = gen("numbers", "--format", "npz", "--files", "20", "--dims", "3", "--dtype", "float32")
    loader = Loader(numbers, 3, shuffle=True, seed=4)
    it = iter(loader)
    next(it)
    copy = pickle.loads(pickle.dumps(loader))
    assert [b.ids.tolist() for b in copy] == [b.ids.tolist() for b in it]


@contextlib.contextmanager
def accelerates(number, world):
    """What accelerate has when it prepares a loader, without accelerate: its states, and a process group."""
    state = types.ModuleType("accelerate.state")
    seen = types.SimpleNamespace(_add_dataloader=lambda _: None, _remove_dataloader=lambda _: None)
    state.AcceleratorState = type("AcceleratorState", (), {"_shared_state": {"a": 1}, "device": torch.device("cpu")})
    state.GradientState = lambda: seen
    utils = types.ModuleType("accelerate.utils")
    utils.send_to_device = lambda batch, device, non_blocking: batch
    before = _ranks.group
    sys.modules.update({"accelerate.state": state, "accelerate.utils": utils})
    _ranks.group = lambda: _ranks.Ranks(number, world, "process group") if world > 1 else None
    try:
        yield
    finally:
        _ranks.group = before
        del sys.modules["accelerate.state"], sys.modules["accelerate.utils"]


def accelerate_divides_what_a_sampler_gives():
    """transformers' Trainer passes torch's samplers of the whole set, which accelerate divides among its ranks."""
    makes = {
        "none": lambda d: dict(batch_size=4, shuffle=True),
        "random": lambda d: dict(batch_size=4, sampler=RandomSampler(d)),
        "sequential": lambda d: dict(batch_size=4, sampler=SequentialSampler(d), drop_last=False),
        "batches": lambda d: dict(batch_sampler=BatchSampler(RandomSampler(d), 4, False)),
    }
    for mode, world, (name, make) in itertools.product(modes()[:2], (1, 2, 3), makes.items()):
        both = []
        for r in range(world):
            with accelerates(r, world):
                loader = DataLoader(data(mode), num_workers=int(mode == "native"), **make(data(mode)))
                assert loader._is_accelerate_prepared and loader._is_accelerate_prepared
                epochs = [[ids(mode, b) for b in loader] for _ in range(2)]
                both.append([sum(e, []) for e in epochs])
                assert len(loader) == len(epochs[0]), (mode, world, name)
                # A new process that skips batches of epoch 1, as accelerate.skip_first_batches does it.
                again = DataLoader(data(mode), num_workers=int(mode == "native"), **make(data(mode)))
                assert again._is_accelerate_prepared
                torch.rand(5)
                if hasattr(again.batch_sampler, "set_epoch"):
                    again.batch_sampler.set_epoch(1)
                assert list(again.batch_sampler) == epochs[1], (mode, world, name)
        for k in range(2):
            read = [i for one in both for i in one[k]]
            assert len(read) == -(-N // world) * world and set(read) == set(range(N)), (mode, world, name, len(read))
        assert (both[0][0] == both[0][1]) == (name == "sequential")


def accelerate_divides_other_samplers_itself():
    """A sampler of the program's, of an unknown part of the data: accelerate puts its own loader around it."""
    for sampler in (Steps(), RandomSampler(range(N), replacement=True), SubsetRandomSampler(range(10))):
        with accelerates(0, 2):
            assert not DataLoader(data("called"), 4, sampler=sampler)._is_accelerate_prepared
        with accelerates(0, 1):
            assert DataLoader(data("called"), 4, sampler=sampler)._is_accelerate_prepared
    with accelerates(0, 2):
        mine = DataLoader(data("called"), 4, sampler=DistributedSampler(range(N), 2, 0))
        assert mine._is_accelerate_prepared


def seeds_decide_about_the_order_under_accelerate():
    def first(seed):
        torch.manual_seed(seed)
        loader = DataLoader(data("called"), 4, shuffle=True)
        assert loader._is_accelerate_prepared
        return [ids("called", b) for b in loader]

    with accelerates(0, 1):
        assert first(1) == first(1) != first(2)


def checkpoints_have_states():
    """What the documentation prints: the saver takes the loader, and the state that it saved continues."""
    from millrace.checkpoint import Saver, load

    def make():
        return DataLoader(data("native"), 4, shuffle=True, num_workers=1)

    loader, place = make(), os.path.join(folder, "checkpoint")
    it = iter(loader)
    next(it)
    with Saver(place) as saver:
        saver.save(1, {"weights": torch.ones(3)}, loader=loader)
    rest = [ids("native", b) for b in it]
    torch.manual_seed(99)
    again = make()
    again.load_state_dict(load(place, what="loader"))
    assert [ids("native", b) for b in again] == rest


run([checkpoints_have_states, loaders_travel_in_pickles, states_carry_their_seed, states_continue_or_are_refused, samplers_of_programs_continue_with_as_many_ranks,
     accelerate_divides_what_a_sampler_gives, accelerate_divides_other_samplers_itself, seeds_decide_about_the_order_under_accelerate])
