"""test-label: once

Token corpora and mixtures in NumPy: samples are those of arrays made here, packed rows hold every token once, and streams
of mixtures go on from a state with any number of ranks."""
import collections
import json
import os
import pickle
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import folder, gen, raises, run  # noqa: E402

import numpy as np  # noqa: E402

from millrace.mixtures import Mixture, Source, Stream  # noqa: E402
from millrace.numpy import Loader  # noqa: E402
from millrace.tokens import Tokens, collate  # noqa: E402


def documents(seed, n, longest=300):
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 60000, rng.integers(0, longest)).astype(np.uint16) for _ in range(n)]


def megatron(name, docs, code=8):
    prefix = os.path.join(folder, name)
    lengths = np.array([len(d) for d in docs], np.int32)
    pointers = np.concatenate([[0], np.cumsum(lengths.astype(np.int64) * 2)[:-1]]).astype(np.int64)
    with open(prefix + ".idx", "wb") as f:
        f.write(b"MMIDIDX\x00\x00" + np.uint64(1).tobytes() + bytes([code]) + np.uint64(len(docs)).tobytes())
        f.write(np.uint64(len(docs) + 1).tobytes() + lengths.tobytes() + pointers.tobytes())
        f.write(np.arange(len(docs) + 1, dtype=np.int64).tobytes())
    with open(prefix + ".bin", "wb") as f:
        f.write(np.concatenate(docs).tobytes())
    return prefix


def lines(name, docs):
    path = os.path.join(folder, name + ".jsonl")
    with open(path, "w") as f:
        for d in docs:
            f.write(json.dumps({"id": 1, "input_ids": d.tolist()}) + "\n")
    return path


DOCS = documents(1, 200)
WIKI, LINES = megatron("wiki", DOCS), lines("wiki", DOCS)


def fixed_samples_are_the_stream_s():
    flat = np.concatenate(DOCS).astype(np.int64)
    for path in (WIKI, LINES):
        data = Tokens(path, 64, step=48)
        assert len(data) == (len(flat) - 65) // 48 + 1
        got = data.read([0, 5, len(data) - 1, -1])
        for row, i in enumerate((0, 5, len(data) - 1, len(data) - 1)):
            assert np.array_equal(got["tokens"][row], flat[i * 48 : i * 48 + 64])
            assert np.array_equal(got["targets"][row], flat[i * 48 + 1 : i * 48 + 65])
    both = Tokens([WIKI, LINES], 100, targets=False)
    assert len(both) == 2 * (len(flat) // 100) and both.place(len(both) - 1)[0] == 1


def documents_are_whole():
    for path in (WIKI, LINES):
        data = Tokens(path, samples="documents")
        got = data.read([7, 0, 199])
        for i, d in enumerate((7, 0, 199)):
            assert np.array_equal(got["tokens"][got["offsets"][i] : got["offsets"][i + 1]], DOCS[d])
        again = collate([data[7], data[0], data[199]])
        assert all(np.array_equal(again[name], got[name]) for name in ("tokens", "offsets"))
        assert abs(data.mean_tokens - np.mean([len(d) for d in DOCS])) < 1e-9


def packed_rows_hold_every_token_once():
    for path in (WIKI, LINES):
        data = Tokens(path, 128, samples="packed", window=50, pad=65535)
        got = data.read(range(len(data)))
        seen = collections.Counter()
        for row in range(len(data)):
            segments = got["segment_ids"][row]
            for s in range(1, segments.max() + 1):
                at = np.flatnonzero(segments == s)
                piece = got["tokens"][row, at]
                assert np.array_equal(at, np.arange(at[0], at[0] + len(at)))
                assert np.array_equal(got["position_ids"][row, at], np.arange(len(at)))
                assert np.array_equal(got["targets"][row, at], np.append(piece[1:], -100))
                seen[piece.tobytes()] += 1
            assert (got["tokens"][row, segments == 0] == 65535).all()
        want = collections.Counter()
        for d in DOCS:
            for i in range(0, len(d), 128):
                want[d[i : i + 128].astype(np.int64).tobytes()] += 1
        assert seen == want
        flat = got["segment_ids"].ravel()
        starts = got["cu_seqlens"][:-1]
        assert got["cu_seqlens"][0] == 0 and got["cu_seqlens"][-1] == flat.size
        assert all(flat[a] == flat[b - 1] for a, b in zip(starts, got["cu_seqlens"][1:]))
        assert got["max_seqlen"] == np.diff(got["cu_seqlens"]).max()
        again = collate([data[i] for i in (3, 1, 4)])
        whole = data.read([3, 1, 4])
        assert all(np.array_equal(again[name], whole[name]) for name in whole)
        moved = pickle.loads(pickle.dumps(data))
        assert np.array_equal(moved.read([3])["tokens"], whole["tokens"][:1])


def columns_of_parquet_are_documents():
    """Those that the format reads; files of pyarrow: test_tokens_readers.py."""
    root = gen("table", "--format", "parquet", "--files", "1", "--samples-per-file", "300", "--fields", "tokens:i4:40,id:i8:-")
    (name,) = [n for n in os.listdir(root) if n.endswith(".parquet")]
    want = np.concatenate([b.fields["tokens"] for b in Loader(root, 50, rank=0, world=1, fields="*")])
    data = Tokens(os.path.join(root, name), samples="documents")
    assert len(data) == 300
    order = np.random.default_rng(0).permutation(300)
    got = data.read(order)
    assert np.array_equal(got["tokens"].reshape(300, 40), want[order])
    packed = Tokens(os.path.join(root, name), 128, samples="packed")
    rows = packed.read(range(len(packed)))
    assert sorted(rows["tokens"][rows["segment_ids"] > 0].tolist()) == sorted(want.ravel().tolist())
    fixed = Tokens(os.path.join(root, name), 70, targets=False)
    assert np.array_equal(fixed.read([17])["tokens"][0], want.ravel()[17 * 70 : 18 * 70])
    raises(NotImplementedError, "no lists of integers", Tokens, os.path.join(root, name), samples="documents", column="id")
    raises(ValueError, "no column 'x'", Tokens, os.path.join(root, name), samples="documents", column="x")


def bad_corpora_are_named():
    raises(ValueError, "needs a length", Tokens, WIKI)
    raises(ValueError, "has no length", Tokens, WIKI, 5, samples="documents")
    raises(ValueError, "'fixed', 'documents' or 'packed'", Tokens, WIKI, 5, samples="x")
    raises(FileNotFoundError, "nowhere", Tokens, "/nowhere", 5)
    raises(ValueError, "less than one sample", Tokens, WIKI, 1 << 20)
    raises(IndexError, "of 200", Tokens(WIKI, samples="documents").read, [200])
    short = megatron("short", DOCS)
    os.truncate(short + ".bin", 100)
    from millrace import DataError

    raises(DataError, "points behind the end of", Tokens, short, samples="documents")


# ---- mixtures ----


def worlds():
    a = Tokens(megatron("a", documents(2, 100)), 32, targets=False)
    b = Tokens(megatron("b", documents(3, 50)), 32, samples="packed", targets=False)
    return a, b, list(range(17))


def shares_are_exact_in_every_prefix_and_window():
    a, b, c = worlds()
    inner = Mixture([(b, 3), (c, 1)])
    mix = Mixture([(a, 0.7), (inner, 0.3)], seed=4)
    ks = np.arange(5000)
    nodes = mix.items(ks)[0]
    leaf_a = np.cumsum(nodes == 1)
    lag = leaf_a - 0.7 * (ks + 1)
    assert np.abs(lag).max() < 1 + 5000 / 65536 and lag.max() - lag.min() < 2 + 5000 / 65536
    rows = {row["name"]: row for row in mix.shares(5000)}
    for row in rows.values():
        assert abs(row["given"] - row["asked"]) < 1
    assert rows["a"]["given"] == leaf_a[-1] and rows["a"]["epochs"] == leaf_a[-1] / len(a)
    assert rows["b"]["inside"] == "mixture" and rows["b"]["tokens"] > 0
    assert sum(rows[n]["given"] for n in ("a", "b", "source 4")) == 5000


def tokens_as_the_unit():
    docs = [Tokens(megatron(f"u{i}", documents(5 + i, 60, 40 * 4**i)), samples="documents") for i in range(3)]
    mix = Mixture([(d, w) for d, w in zip(docs, (0.5, 0.3, 0.2))], unit="tokens")
    rows = mix.shares(20000)
    total = sum(r["given"] * d.mean_tokens for r, d in zip(rows, docs))
    for row, d, w in zip(rows, docs, (0.5, 0.3, 0.2)):
        assert abs(row["given"] * d.mean_tokens / total - w) < 0.01
    raises(ValueError, "tokens of an item of source 'numbers'", Mixture, [(docs[0], 1), Source(range(5), 1, "numbers")], unit="tokens")


def streams_continue_with_any_number_of_ranks():
    a, b, _ = worlds()
    same = Tokens(a.paths, 32, samples="packed", targets=False)

    def mixture():
        inner = Mixture([(b, 2), (same, 1)], changes=[(70, [1, 5])])
        return Mixture([(same, 3), Source(same, 1, seed=9), (inner, 2)], seed=8, changes=[(100, [1, 1, 1]), (300, [0, 1, 4])])

    want = mixture().__getitems__(range(600))
    at, state = 0, None
    rng = np.random.default_rng(0)
    while at < 500:
        world, size = int(rng.integers(1, 9)), int(rng.integers(1, 6))
        steps = int(rng.integers(1, 5))
        states = []
        for rank in range(world):
            stream = Stream(mixture(), size, rank=rank, world=world, steps=steps)
            if state is not None:
                stream.load_state_dict(json.loads(json.dumps(state)))
            for step, batch in enumerate(stream):
                for i in range(size):
                    k = at + step * size * world + i * world + rank
                    assert k >= 600 or np.array_equal(batch["tokens"][i], want[k]["tokens"]), (k, rank, world)
            states.append(stream.state_dict())
        assert all(s == states[0] for s in states)
        state, at = states[0], at + steps * size * world
    assert all(len(line) < 1024 for line in state["mixture"].splitlines())
    assert state["packed"].keys() == {"1", "2", "4", "5"}


def states_of_other_sources_are_named():
    a, b, c = worlds()
    mix = Mixture([(a, 1), (b, 2), Source(c, 1, "small")], seed=1)
    state = mix.state_at(100)
    raises(ValueError, "source 'small' shrank: it has 16 samples, and had 17", Mixture([(a, 1), (b, 2), Source(c[1:], 1, "small")], seed=1).restore, state)
    raises(ValueError, "the weights of 'mixture'", Mixture([(a, 1), (b, 3), Source(c, 1, "small")], seed=1).restore, state)
    other = json.loads(json.dumps(state))
    other["packed"]["2"][1] += 1
    raises(ValueError, "source 'b' is packed otherwise", mix.restore, other)
    raises(ValueError, "the weight of source 'small' is 0", Mixture, [(a, 1), Source(c, 0, "small")])
    raises(ValueError, "source 'none' is empty", Mixture, [(a, 1), Source([], 1, "none")])
    moved = pickle.loads(pickle.dumps(mix))
    assert np.array_equal(moved.items(range(200)), mix.items(range(200)))


def loaders_take_mixtures_and_corpora():
    a, b, _ = worlds()
    stream = Loader(Mixture([(b, 1)], seed=2), 4, rank=0, world=1)
    batch = next(iter(stream))
    assert batch["tokens"].shape == (4, 32) and batch["cu_seqlens"][-1] == 128
    assert stream.stats()["item"] == 4 and stream.stats()["sources"][0]["given"] == 4
    plain = next(iter(Loader(a, 4, shuffle=False, rank=0, world=1)))
    assert np.array_equal(plain["tokens"], a.read(range(4))["tokens"])


run(
    [
        fixed_samples_are_the_stream_s,
        documents_are_whole,
        packed_rows_hold_every_token_once,
        columns_of_parquet_are_documents,
        bad_corpora_are_named,
        shares_are_exact_in_every_prefix_and_window,
        tokens_as_the_unit,
        streams_continue_with_any_number_of_ranks,
        states_of_other_sources_are_named,
        loaders_take_mixtures_and_corpora,
    ]
)
