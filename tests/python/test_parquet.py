"""Parquet files of pyarrow read by us, and ours by pyarrow: every value, in all encodings, codecs and page versions that
are read; what is not read is refused by name. test-label: full"""
import decimal
import itertools
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import MILLRACE, folder, gen, run, skip  # noqa: E402

import numpy as np  # noqa: E402

try:
    import pyarrow as pa
    import pyarrow.parquet as pq
except ImportError:
    skip("there is no pyarrow")

from millrace.numpy import Loader  # noqa: E402

ROWS = 5000
RNG = np.random.default_rng(7)
FOLDER = folder


def columns():
    small = RNG.integers(0, 90, ROWS)
    lengths = RNG.integers(0, 6, ROWS)
    words = [b"" if i % 7 == 0 else bytes([65 + i % 26]) * (i % 40) for i in range(ROWS)]
    return {
        "i64": pa.array(RNG.integers(-2**62, 2**62, ROWS)),
        "rising": pa.array(np.cumsum(RNG.integers(-5, 1000, ROWS))),
        "i32": pa.array(RNG.integers(-2**31, 2**31, ROWS).astype(np.int32)),
        "u32": pa.array(RNG.integers(0, 2**32, ROWS).astype(np.uint32)),
        "i16": pa.array(RNG.integers(-2**15, 2**15, ROWS).astype(np.int16)),
        "u8": pa.array(RNG.integers(0, 256, ROWS).astype(np.uint8)),
        "few": pa.array(small.astype(np.int64)),
        "fewf": pa.array(small.astype(np.float32)),
        "f32": pa.array(RNG.standard_normal(ROWS).astype(np.float32)),
        "f64": pa.array(RNG.standard_normal(ROWS)),
        "f16": pa.array(RNG.standard_normal(ROWS).astype(np.float16)),
        "flag": pa.array(RNG.integers(0, 2, ROWS).astype(bool)),
        "same": pa.array(np.full(ROWS, 7, np.int32)),
        "bytes": pa.array(words, pa.binary()),
        "text": pa.array([w.decode() for w in words], pa.string()),
        "fixed": pa.array([i.to_bytes(4, "little") * 3 for i in range(ROWS)], pa.binary(12)),
        "list": pa.array([RNG.standard_normal(n).astype(np.float32) for n in lengths], pa.list_(pa.float32())),
        "lists": pa.array([RNG.integers(-9, 9, n).astype(np.int16) for n in lengths[::-1]], pa.list_(pa.int16())),
        "three": pa.array([RNG.standard_normal(3) for _ in range(ROWS)], pa.list_(pa.float64(), 3)),
    }


TABLE = pa.table(columns())
REQUIRED = TABLE.cast(pa.schema([f.with_nullable(False) for f in TABLE.schema]))


def value(name, i):
    v = TABLE[name][i].as_py()
    if isinstance(v, (bytes, str)):
        return v
    dtype = {"list": np.float32, "lists": np.int16, "three": np.float64}.get(name)
    return np.asarray(v, dtype) if dtype else TABLE[name].to_numpy()[i]


WANT = {name: [value(name, i) for i in range(ROWS)] for name in TABLE.column_names}


def same(have, want):
    if isinstance(want, str):
        return have == want
    if isinstance(want, bytes):
        return bytes(have) == want
    return have.dtype == want.dtype and have.shape == want.shape and have.tobytes() == want.tobytes()


def read_back(path, **options):
    subprocess.run([MILLRACE, "scan", path], check=True, capture_output=True)
    seen = 0
    for batch in Loader(path + ".mrm", 777, fields="*", **options):
        for name, values in batch.fields.items():
            for i, row in enumerate(batch.ids):
                assert same(values[i], WANT[name][row]), (path, name, row, values[i], WANT[name][row])
        seen += len(batch.ids)
    assert seen == ROWS


def pyarrow_writes_and_we_read():
    kinds = itertools.product(["none", "snappy", "zstd", "lz4", "gzip"], ["1.0", "2.0"], [True, False], [ROWS, 1234])
    for i, (codec, page, dictionary, group) in enumerate(kinds):
        path = os.path.join(FOLDER, f"a{i}.parquet")
        table = REQUIRED if i % 3 == 0 else TABLE
        pq.write_table(table, path, compression=codec, data_page_version=page, use_dictionary=dictionary,
                       row_group_size=group, data_page_size=3000 if i % 2 else 1 << 20, write_page_checksum=i % 4 == 1,
                       write_page_index=i % 5 == 1)
        read_back(path, shuffle=i % 6 == 5, seed=i)


def other_encodings():
    ints = ["i64", "rising", "i32", "u32", "i16", "u8", "few", "same"]
    floats = ["f32", "f64", "fewf", "i32", "i64", "f16", "fixed"]
    encodings = [{n: "DELTA_BINARY_PACKED" for n in ints}, {n: "BYTE_STREAM_SPLIT" for n in floats}, {"flag": "RLE"}]
    for k, (encoding, page) in enumerate(itertools.product(encodings, ["1.0", "2.0"])):
        path = os.path.join(FOLDER, f"e{k}.parquet")
        pq.write_table(TABLE.select(list(encoding)), path, use_dictionary=False, column_encoding=encoding,
                       data_page_version=page, compression="zstd" if k % 2 else "none", row_group_size=2000)
        read_back(path)


def large_chunks_are_read_in_parts():
    n = 300_000
    table = pa.table({"x": np.arange(n, dtype=np.int64) * 3, "d": np.arange(n) % 1000,
                      "l": pa.array([[i, i + 1] for i in range(n)], pa.list_(pa.int32()))})
    for page, index in (("1.0", False), ("2.0", False), ("1.0", True)):
        path = os.path.join(FOLDER, f"large{page}{index}.parquet")
        pq.write_table(table, path, compression="none", data_page_version=page, write_page_index=index,
                       data_page_size=65536)
        subprocess.run([MILLRACE, "scan", path], check=True, capture_output=True)
        seen = 0
        for batch in Loader(path + ".mrm", 10_000):
            assert np.array_equal(np.stack(list(batch.fields["x"])), batch.ids.astype(np.int64) * 3)
            assert np.array_equal(np.stack(list(batch.fields["d"])), batch.ids.astype(np.int64) % 1000)
            assert [list(v) for v in batch.fields["l"][:50]] == [[i, i + 1] for i in batch.ids[:50]]
            seen += len(batch.ids)
        assert seen == n


def numbers(v):
    """The bytes of a number or list of a table; by way of Python's floats some would change."""
    return (v.values if pa.types.is_list(v.type) else pa.array([v], v.type)).to_numpy(zero_copy_only=False).tobytes()


def we_write_and_pyarrow_reads():
    fields = "x:f4:3x5,i:i8:-,s:i2:4,u:u1:-,v:u2:-,h:f2:-,b:u1:11,w:f8:2,k:u4:-,q:u8:3"
    for extra in (), ("--compression", "gzip"), ("--chunk", "64"):
        folder = gen("ours" + "".join(extra), "--format", "parquet", "--files", "2", "--samples-per-file", "500",
                     "--fields", fields, "--labels", "9", *extra)
        files = sorted(f for f in os.listdir(folder) if f.endswith(".parquet"))
        tables = [pq.read_table(os.path.join(folder, f), page_checksum_verification=True) for f in files]
        table = pa.concat_tables(tables)
        groups = pq.ParquetFile(os.path.join(folder, files[0])).metadata.num_row_groups
        assert groups == (8 if "--chunk" in extra else 1), groups
        for batch in Loader(folder, 100):
            for name, values in batch.fields.items():
                for i, row in enumerate(batch.ids):
                    v = table[name][int(row)]
                    want = v.as_py() if pa.types.is_binary(v.type) else numbers(v)
                    assert values[i].tobytes() == want, (name, row)


def refusal(path, *options):
    r = subprocess.run([MILLRACE, "scan", path, *options], capture_output=True, text=True)
    assert r.returncode != 0, path
    return r.stderr


def what_is_not_read_is_named():
    def write(name, table, **options):
        path = os.path.join(FOLDER, name + ".parquet")
        pq.write_table(table, path, **options)
        return path
    nested = write("nested", pa.table({"a": [1, 2], "deep": [[[1]], [[2]]], "pair": [{"x": 1, "y": 2}] * 2}))
    assert "column 'deep'" in refusal(nested) and "--fields" in refusal(nested)
    subprocess.run([MILLRACE, "scan", nested, "--fields", "a"], check=True, capture_output=True)
    assert "column 'pair'" in refusal(nested, "--fields", "pair")
    for encoding in "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY":
        path = write(encoding, pa.table({"word": ["a", "b"]}), use_dictionary=False, column_encoding={"word": encoding})
        assert "column 'word'" in refusal(path) and encoding in refusal(path)
    assert "column 'hole'" in refusal(write("null", pa.table({"hole": [1, None, 3]})))
    assert "brotli" in refusal(write("brotli", pa.table({"x": [1]}), compression="brotli"))
    assert "column 'd'" in refusal(write("decimal", pa.table({"d": [decimal.Decimal("1.5")]})))
    wide = write("wide", pa.table({f"c{i}": np.arange(3) + i for i in range(10_000)}))
    assert "10000 columns" in refusal(wide)
    subprocess.run([MILLRACE, "scan", wide, "--fields", "c9999,c0"], check=True, capture_output=True)
    batch = next(iter(Loader(wide + ".mrm", 3)))
    assert [int(v) for v in batch.fields["c9999"]] == [9999, 10000, 10001]


def damage_is_found():
    path = os.path.join(FOLDER, "damaged.parquet")
    pq.write_table(TABLE.select(["i64", "f32"]), path, compression="none", use_dictionary=False, write_page_checksum=True)
    subprocess.run([MILLRACE, "scan", path], check=True, capture_output=True)
    data = bytearray(open(path, "rb").read())
    data[2000] ^= 4
    before = os.stat(path)
    open(path, "r+b").write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    try:
        list(Loader(path + ".mrm", 777))
    except Exception as e:
        assert "checksum" in str(e) and "i64" in str(e) and "damaged.parquet" in str(e), e
    else:
        raise AssertionError("a wrong checksum went unnoticed")
    open(path, "r+b").truncate(len(data) - 30000)
    assert "cut" in refusal(path)


run(
    [
        pyarrow_writes_and_we_read,
        other_encodings,
        large_chunks_are_read_in_parts,
        we_write_and_pyarrow_reads,
        what_is_not_read_is_named,
        damage_is_found,
    ]
)
