"""test-label: full

Token corpora written by Megatron's IndexedDatasetBuilder and MosaicML Streaming's MDSWriter: ours gives what their own readers
give, sample by sample. Their packages are loaded without their __init__ files, which import whole frameworks."""
import importlib.util
import os
import sys
import types

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import folder, raises, run, skip  # noqa: E402

import numpy as np  # noqa: E402

from millrace.tokens import Tokens  # noqa: E402


def bare(*names):
    """Packages with their modules, but without running their __init__."""
    for name in names:
        spec = importlib.util.find_spec(name)
        if spec is None:
            raise ModuleNotFoundError(name)
        module = types.ModuleType(name)
        module.__path__, module.__spec__ = list(spec.submodule_search_locations), spec
        sys.modules[name] = module


def load_megatron():
    bare("megatron", "megatron.core", "megatron.core.datasets")
    utils = types.ModuleType("megatron.core.utils")
    utils.log_single_rank = lambda *_, **__: None
    sys.modules["megatron.core.utils"] = utils
    return importlib.import_module("megatron.core.datasets.indexed_dataset")


def load_streaming():
    bare("streaming", "streaming.base", "streaming.base.format", "streaming.base.format.base", "streaming.base.format.mds")
    return [importlib.import_module(f"streaming.base.format.mds.{name}") for name in ("writer", "reader")]


try:
    indexed = load_megatron()
    writer, reader = load_streaming()
except ImportError as why:
    skip(f"megatron-core or mosaicml-streaming is not installed: {why}")

import torch  # noqa: E402

rng = np.random.default_rng(5)


def megatron_files_are_read_as_by_megatron():
    for dtype in (np.uint8, np.int8, np.int16, np.int32, np.int64, np.uint16):
        prefix = os.path.join(folder, f"m-{np.dtype(dtype).name}")
        build = indexed.IndexedDatasetBuilder(prefix + ".bin", dtype=dtype)
        for _ in range(60):
            lengths = rng.integers(1, 90, rng.integers(1, 4)).tolist()
            top = min(np.iinfo(dtype).max, 60000)
            build.add_document(torch.tensor(rng.integers(0, top, sum(lengths)).astype(np.int64)), lengths)
        build.finalize(prefix + ".idx")
        theirs = indexed.IndexedDataset(prefix)
        bounds = theirs.document_indices
        want = [np.concatenate([theirs[s] for s in range(a, b)]) for a, b in zip(bounds, bounds[1:])]
        ours = Tokens(prefix, samples="documents")
        assert len(ours) == len(want) == 60 and ours.info["tokens"] == sum(len(w) for w in want)
        for i, w in enumerate(want):
            assert np.array_equal(ours[i]["tokens"], w.astype(np.int64)), (dtype, i)
        flat = np.concatenate(want).astype(np.int64)
        fixed = Tokens(prefix, 50)
        for i in range(len(fixed)):
            assert np.array_equal(fixed[i]["tokens"], flat[50 * i : 50 * i + 50])
        packed = Tokens(prefix, 64, samples="packed", window=16)
        got = packed.read(range(len(packed)))
        assert sorted(got["tokens"][got["segment_ids"] > 0].tolist()) == sorted(flat.tolist())


def mds_files_are_read_as_by_mosaicml():
    kinds = {
        "ndarray": lambda n: rng.integers(0, 60000, n).astype(rng.choice([np.uint16, np.int32, np.int64])),
        "ndarray:uint16": lambda n: rng.integers(0, 60000, n).astype(np.uint16),
        "ndarray:int32:8,4": lambda n: rng.integers(0, 1 << 30, (8, 4)).astype(np.int32),
        "ndarray:int64": lambda n: rng.integers(0, 1 << 40, (2, n)),
        "bytes": lambda n: rng.integers(0, 1 << 30, n).astype(np.int32).tobytes(),
    }
    for k, (kind, make) in enumerate(kinds.items()):
        for packed in (None, "zstd", "zstd:7"):
            out = os.path.join(folder, f"mds{k}-{packed}".replace(":", "-"))
            columns = {"after": "str", "tokens": kind, "id": "int", "text": "str"}
            with writer.MDSWriter(out=out, columns=columns, compression=packed, size_limit=1 << 14) as w:
                for i in range(150):
                    sample = {"after": "x" * int(rng.integers(0, 9)), "id": i, "text": "é" * int(rng.integers(0, 50))}
                    w.write({**sample, "tokens": make(int(rng.integers(1, 400)))})
            want = list(theirs(out, packed))
            ours = Tokens(out, samples="documents", dtype="int32" if kind == "bytes" else None)
            assert len(ours) == len(want) == 150
            for i in list(range(0, 150, 7)) + [149, 0]:
                assert np.array_equal(ours[i]["tokens"], want[i]), (kind, packed, i)
            flat = np.concatenate(want)
            fixed = Tokens(out, 100, targets=False, dtype="int32" if kind == "bytes" else None)
            got = np.concatenate([fixed[i]["tokens"] for i in range(len(fixed))])
            assert np.array_equal(got, flat[: len(got)]) and len(flat) - len(got) < 100


def theirs(out, packed):
    import json

    import zstd

    with open(os.path.join(out, "index.json")) as f:
        index = json.load(f)
    for shard in index["shards"]:
        one = reader.MDSReader.from_json(out, "", dict(shard))
        raw = os.path.join(out, one.raw_data.basename)
        if packed and not os.path.exists(raw):
            with open(os.path.join(out, one.zip_data.basename), "rb") as f:
                content = zstd.decompress(f.read())
            with open(raw, "wb") as f:
                f.write(content)
        for i in range(one.samples):
            tokens = one.decode_sample(one.get_sample_data(i))["tokens"]
            tokens = np.frombuffer(tokens, np.int32) if isinstance(tokens, bytes) else tokens
            yield tokens.ravel().astype(np.int64)


def columns_of_pyarrow_are_documents():
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        print("  (there is no pyarrow)")
        return
    docs = [rng.integers(0, 60000, rng.integers(0, 300)).astype(np.int32) for _ in range(2000)]
    table = pa.table({"text": ["x"] * 2000, "input_ids": pa.array(docs), "raw": [d.tobytes() for d in docs]})
    for codec in ("none", "snappy", "zstd"):
        path = os.path.join(folder, f"{codec}.parquet")
        pq.write_table(table, path, compression=codec, row_group_size=700)
        for more in ({}, {"column": "raw", "dtype": "int32"}):
            ours = Tokens(path, samples="documents", **more)
            assert len(ours) == 2000
            for i in rng.permutation(2000)[:200]:
                assert np.array_equal(ours[int(i)]["tokens"], docs[i]), (codec, more, i)
            packed = Tokens(path, 256, samples="packed", **more)
            assert packed.info["delivered"] == sum(len(d) for d in docs)


def pickled_tokens_are_refused():
    out = os.path.join(folder, "pickled")
    with writer.MDSWriter(out=out, columns={"tokens": "pkl"}) as w:
        w.write({"tokens": [1, 2, 3]})
    raises(NotImplementedError, "unpickling runs code", Tokens, out, samples="documents")


run([megatron_files_are_read_as_by_megatron, mds_files_are_read_as_by_mosaicml, columns_of_pyarrow_are_documents, pickled_tokens_are_refused])
