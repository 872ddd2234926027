"""millrace.torch.DataLoader is a torch.utils.data.DataLoader: frameworks find its attributes, make loaders of them, and get the same samples; what
torch refuses is refused; what torch lets a program change counts from the next epoch on. Skipped without PyTorch."""
import copy
import inspect
import os
import sys
import time
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import gen, raises, run, skip  # noqa: E402

try:
    import torch
except Exception as reason:
    skip(f"no PyTorch ({reason})")

from millrace.torch import DataLoader  # noqa: E402

torch.set_num_threads(1)
Theirs = torch.utils.data.DataLoader


class Indices(torch.utils.data.Dataset):
    """Sample i is i; a list of indices gives the list."""

    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return i


class Stream(torch.utils.data.IterableDataset):
    def __len__(self):
        return 3

    def __iter__(self):
        return iter(range(6))


def quiet(*args, **more):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return DataLoader(*args, **more)


def values(loader):
    return [b.tolist() if isinstance(b, torch.Tensor) else b for b in loader]


def it_is_torchs_loader():
    assert isinstance(quiet(Indices(3)), Theirs) and DataLoader[int] is not None
    for given in (dict(batch_size=2, shuffle=True), dict(batch_size=None), dict(batch_sampler=[[0, 1], [2]]), dict(sampler=[2, 0]), dict(num_workers=1)):
        ours, theirs = quiet(Indices(3), **given), Theirs(Indices(3), **given)
        for name in ("batch_size", "num_workers", "collate_fn", "pin_memory", "drop_last", "timeout", "persistent_workers", "generator"):
            assert getattr(ours, name) == getattr(theirs, name), (given, name)
        assert type(ours.batch_sampler) is type(theirs.batch_sampler) and len(ours) == len(theirs)


def what_torch_refuses_is_refused():
    for kind, text, given in (
        (ValueError, "num_workers option should be non-negative", dict(num_workers=-1)),
        (ValueError, "timeout option should be non-negative", dict(timeout=-1)),
        (ValueError, "prefetch_factor", dict(prefetch_factor=-1)),
        (ValueError, "persistent_workers option needs num_workers > 0", dict(persistent_workers=True)),
        (ValueError, "multi-process", dict(multiprocessing_context="fork")),
        (ValueError, "mutually exclusive", dict(sampler=[0], shuffle=True)),
        (ValueError, "mutually exclusive", dict(batch_sampler=[[0]], batch_size=3)),
        (ValueError, "mutually exclusive", dict(batch_size=None, drop_last=True)),
    ):  # fmt: skip
        raises(kind, text, quiet, Indices(4), **given)
    raises(ValueError, "shuffle", quiet, Stream(), shuffle=True)
    loader = quiet(Indices(4))
    for name in ("batch_size", "batch_sampler", "drop_last", "sampler", "dataset", "persistent_workers"):
        raises(ValueError, "should not be set", setattr, loader, name, {})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        DataLoader(Indices(4), num_workers=1000)
        assert any("1000 worker processes" in str(w.message) for w in said)


def another_one_like_it():
    """As Lightning does: type(loader)(**what of vars(loader) its constructor takes)."""
    path = gen("raw", "--format", "raw", "--files", "20", "--size", "64")
    for dataset, given in (
        (Indices(20), dict(batch_size=6, drop_last=True)),
        (Indices(20), dict(batch_size=None)),
        (Indices(20), dict(batch_size=3, workers="threads", num_workers=2, on_error="skip")),
        (path, dict(batch_size=6, structure="dict", num_workers=1, native=True)),
        (path, dict(batch_size=6, prefetch_factor=4)),
    ):
        loader = quiet(dataset, **given)
        takes = inspect.signature(type(loader).__init__).parameters
        kept = {k: v for k, v in vars(loader).items() if k in takes}
        assert not set(given) - set(kept), (given, set(kept))
        if loader.batch_size is not None:
            kept["sampler"], kept["batch_sampler"] = [3, 1, 2, 0, 7, 9, 5, 4], None
        else:
            kept["sampler"], kept["batch_sampler"] = [3, 1, 2], None
        other = quiet(**kept)
        want = quiet(dataset, sampler=kept["sampler"], **given)
        assert str(list(other)) == str(list(want)) and len(other) == len(want) and other.native == want.native
        assert other.structure == want.structure and other.prefetch_factor == want.prefetch_factor


def a_path_is_a_data_set_for_others():
    path = gen("numbered", "--format", "raw", "--files", "12", "--size", "64")
    ours = DataLoader(path, 5, shuffle=True, generator=torch.Generator().manual_seed(1))
    for workers in (0, 1):
        theirs = Theirs(ours.dataset, 5, shuffle=True, num_workers=workers, generator=torch.Generator().manual_seed(1))
        assert str(list(theirs)) == str(list(ours)) or workers
    assert len(ours.dataset) == 12
    raises(IndexError, "sample 12 of 12", lambda: ours.dataset[12])


def changes_count_from_the_next_epoch_on():
    path = gen("changed", "--format", "raw", "--files", "12", "--size", "64")
    for dataset in (path, Indices(12)):
        loader = quiet(dataset, 4)
        assert len(list(loader)) == 3
        loader.collate_fn = len_of
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert list(loader) == [4, 4, 4], list(loader)
        loader.collate_fn = None
    loader = quiet(Indices(12), 4)
    loader.num_workers = 1
    assert values(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]] and "1 worker process" in repr(loader)
    assert values(copy.copy(loader)) == values(loader)


def len_of(batch):
    return len(batch)


def lengths_of_streams_are_checked():
    loader = quiet(Stream())
    assert len(loader) == 3
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert len(list(loader)) == 6
    assert sum("Length of IterableDataset" in str(w.message) for w in said) >= 1, [str(w.message) for w in said]


class Broken(Indices):
    """Each sample of an odd number is an error."""

    def __getitem__(self, i):
        if i % 2:
            raise KeyError(f"sample {i}")
        return i


def after_an_error_comes_the_next_batch():
    for given in (dict(), dict(num_workers=1), dict(num_workers=2, workers="threads")):
        loader = quiet(Broken(5), 1, **given)
        got, batches = [], iter(loader)
        while True:
            try:
                got.append(next(batches).item())
            except StopIteration:
                break
            except KeyError as why:
                got.append("sample" in str(why))
                if len(got) == 2:
                    state = loader.state_dict()
        assert got == [0, True, 2, True, 4], (given, got)
        loader.load_state_dict(state)
        assert next(iter(loader)).item() == 2, given


def iterators_have_torchs_attributes():
    batches = iter(quiet(Indices(8), 2, num_workers=1))
    assert len(batches._workers) == 1 and batches._workers[0].is_alive()
    assert not hasattr(batches, "_nothing")
    assert len(list(batches)) == 4 and len(batches._workers) == 1
    raises(NotImplementedError, "any order", quiet(Indices(8), 2, num_workers=1, in_order=False).state_dict)


class Uneven(torch.utils.data.IterableDataset):
    """The first worker has few numbers and is slow, the second one has many."""

    def __iter__(self):
        first = torch.utils.data.get_worker_info().id == 0
        for i in range(3 if first else 40):
            time.sleep(0.01 if first else 0)
            yield i if first else 100 + i


def streams_come_in_any_order():
    loader = quiet(Uneven(), 2, num_workers=2, in_order=False, persistent_workers=True)
    for _ in range(2):
        assert sorted(i for batch in loader for i in batch.tolist()) == [*range(3), *range(100, 140)]
    raises(NotImplementedError, "any order", loader.state_dict)
    state = quiet(Uneven(), 2, num_workers=2).state_dict()
    raises(NotImplementedError, "any order", loader.load_state_dict, state)


run([
    streams_come_in_any_order, after_an_error_comes_the_next_batch, iterators_have_torchs_attributes,
    it_is_torchs_loader, what_torch_refuses_is_refused, another_one_like_it, a_path_is_a_data_set_for_others, changes_count_from_the_next_epoch_on,
    lengths_of_streams_are_checked,
])  # fmt: skip
