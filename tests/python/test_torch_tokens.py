"""test-label: once

Token corpora and mixtures in millrace.torch: packed batches, mixtures through DataLoader by threads and processes, resumed
by other numbers of ranks with the same remaining stream."""
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import folder, raises, run, skip  # noqa: E402

try:
    import torch
except ImportError:
    skip("there is no PyTorch")

import warnings  # noqa: E402

import numpy as np  # noqa: E402

from millrace.torch import DataLoader, Mixture, Tokens  # noqa: E402

warnings.filterwarnings("ignore", message="millrace.torch")


def megatron(name, docs, dtype=np.uint16, code=8):
    prefix = os.path.join(folder, name)
    lengths = np.array([len(d) for d in docs], np.int32)
    pointers = np.concatenate([[0], np.cumsum(lengths.astype(np.int64) * dtype().itemsize)[:-1]]).astype(np.int64)
    with open(prefix + ".idx", "wb") as f:
        f.write(b"MMIDIDX\x00\x00" + np.uint64(1).tobytes() + bytes([code]) + np.uint64(len(docs)).tobytes())
        f.write(np.uint64(len(docs) + 1).tobytes() + lengths.tobytes() + pointers.tobytes())
        f.write(np.arange(len(docs) + 1, dtype=np.int64).tobytes())
    with open(prefix + ".bin", "wb") as f:
        f.write(np.concatenate(docs).astype(dtype).tobytes())
    return prefix


rng = np.random.default_rng(0)
DOCS = [rng.integers(0, 60000, rng.integers(1, 200)) for _ in range(100)]
WIKI = megatron("wiki", DOCS)
CODE = megatron("code", DOCS[:40], np.int32, 4)


def fixed_samples_of_megatron_are_native():
    flat = torch.tensor(np.concatenate(DOCS))
    for path, n, kind in ((WIKI, 100, "u2"), (CODE + ".idx", 40, "i4")):
        data = Tokens(path, 32)
        whole = flat[: sum(len(d) for d in DOCS[:n])]
        assert data.corpus is None and data.dtype == kind and len(data) == (len(whole) - 33) // 32 + 1
        loader = DataLoader(data, 8)
        assert loader.native is True
        got = list(loader)
        assert torch.equal(torch.cat([t for t, _ in got]).ravel(), whole[: len(data) * 32])
        assert torch.equal(torch.cat([t for _, t in got]).ravel(), whole[1 : len(data) * 32 + 1])
        assert all(torch.equal(a, b) for a, b in zip(data[3], data.__getitems__([3])[0]))


def packed_batches_have_borders():
    data = Tokens(WIKI, 64, samples="packed", window=30)
    for workers, kind in ((0, "processes"), (2, "threads"), (2, "processes")):
        loader = DataLoader(data, 4, num_workers=workers, workers=kind)
        for i, batch in enumerate(loader):
            want = data.corpus.read(range(4 * i, min(4 * i + 4, len(data))))
            assert batch.keys() == want.keys() and batch["tokens"].dtype == torch.int64
            assert all(np.array_equal(np.asarray(batch[name]), want[name]) for name in want)
        assert i == (len(data) - 1) // 4
    one = next(iter(torch.utils.data.DataLoader(data, 3)))
    assert one["tokens"].shape == (3, 64) and "cu_seqlens" not in one


def documents_are_packed_with_offsets():
    data = Tokens(WIKI, samples="documents")
    batch = next(iter(DataLoader(data, 5)))
    for i in range(5):
        piece = batch["tokens"][batch["offsets"][i] : batch["offsets"][i + 1]]
        assert np.array_equal(piece.numpy(), DOCS[i])


def mixture(n=60, **more):
    code = Tokens(CODE, 64, samples="packed", targets=False)
    return Mixture([(Tokens(WIKI, 64, samples="packed", targets=False), 5), (code, 2)], seed=3, samples=n, **more)


def rows_of(batch):
    return [tuple(row.tolist()) for row in batch["tokens"]]


def epochs_go_on_where_the_one_before_ends():
    want = [tuple(s["tokens"].tolist()) for s in mixture().__getitems__(range(120))]
    loader = DataLoader(mixture(), 7)
    got = [row for _ in range(2) for batch in loader for row in rows_of(batch)]
    assert got == want
    loader.set_epoch(1)
    assert rows_of(next(iter(loader))) == want[60:67]


def ranked(rank, world, batch, state=None, **more):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
    try:
        loader = DataLoader(mixture(**more), batch, distributed=True)
        if state is not None:
            loader.load_state_dict(state)
        iterator = iter(loader)
        return loader, iterator
    finally:
        pass


def other_numbers_of_ranks_continue_the_stream():
    want = [tuple(s["tokens"].tolist()) for s in mixture().__getitems__(range(60))]
    state, at = None, 0
    for world, batch, steps in ((2, 3, 2), (3, 2, 2), (1, 4, 1), (4, 2, 2)):
        got, states = {}, []
        for rank in range(world):
            loader, iterator = ranked(rank, world, batch, state)
            for step in range(steps):
                for i, row in enumerate(rows_of(next(iterator))):
                    got[at + step * batch * world + i * world + rank] = row
            states.append(loader.state_dict())
            loader.close()
        state, at = states[0], at + steps * batch * world
        assert all(want[k] == row for k, row in got.items()) and state["mixture"]["item"] == at
    for name in ("RANK", "WORLD_SIZE"):
        del os.environ[name]
    left = DataLoader(mixture(changes=[(at + 4, [0, 1])]), 4, distributed=False)
    left.load_state_dict(state)
    rows = [row for batch in left for row in rows_of(batch)]
    assert rows[:3] == want[at : at + 3] and len(rows) == 60 - at
    other = Mixture([(Tokens(WIKI, 64, samples="packed", targets=False), 5), (Tokens(CODE, 32, samples="packed"), 2)], seed=3, samples=60)
    raises(ValueError, "source 'code' grew", DataLoader(other, 4).load_state_dict, state)
    plain = DataLoader(list(range(60)), 4)
    raises(ValueError, "MixtureSampler", plain.load_state_dict, state)


def mixtures_of_any_data_sets():
    tensors = torch.utils.data.TensorDataset(torch.arange(10.0))
    batch = next(iter(DataLoader(Mixture([(tensors, 1), ([(torch.tensor(-1.0),)], 1)]), 6)))
    assert (batch[0] < 0).sum() == 3
    fixed, packed = Tokens(WIKI, 32), Tokens(WIKI, 64, samples="packed")
    raises(ValueError, "not alike", next, iter(DataLoader(Mixture([(fixed, 1), (packed, 1)]), 4)))
    other = Tokens(CODE, 32, samples="packed")
    raises(ValueError, "give sources one length", next, iter(DataLoader(Mixture([(other, 1), (packed, 1)]), 4)))
    raises(TypeError, "(source, weight)", Mixture, [fixed])
    raises(TypeError, "a 'generator' has not", Mixture, [((i for i in range(3)), 1)])
    raises(IndexError, "begin with 0", mixture().__getitem__, -1)
    raises(FileNotFoundError, "with an index.json", Tokens, folder, 32)


run(
    [
        mixtures_of_any_data_sets,
        fixed_samples_of_megatron_are_native,
        packed_batches_have_borders,
        documents_are_packed_with_offsets,
        epochs_go_on_where_the_one_before_ends,
        other_numbers_of_ranks_continue_the_stream,
    ]
)
