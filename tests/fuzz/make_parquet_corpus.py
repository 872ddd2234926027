"""Writes tests/fuzz/corpus/parquet: small files of pyarrow, one per way in which values can lie. Run by hand:

    python3 tests/fuzz/make_parquet_corpus.py      (needs pyarrow)

Every table has 40 rows; of row i: x = 3 i - 7, f = i / 4, k = i % 5 (kept as a dictionary where there are any), s = "row i",
v = [i, i + 1, ...] with i % 4 items. tests/unit/test_format_parquet.c holds the files against this."""
import os

import pyarrow as pa
import pyarrow.parquet as pq

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "corpus", "parquet")
N = 40

table = pa.table(
    {
        "x": pa.array([3 * i - 7 for i in range(N)], pa.int64()),
        "f": pa.array([i / 4 for i in range(N)], pa.float32()),
        "k": pa.array([i % 5 for i in range(N)], pa.int32()),
        "s": pa.array([f"row {i}" for i in range(N)], pa.string()),
        "v": pa.array([[i + j for j in range(i % 4)] for i in range(N)], pa.list_(pa.int16())),
    }
)
required = table.cast(pa.schema([f.with_nullable(False) for f in table.schema]))

os.makedirs(HERE, exist_ok=True)
for name, codec, options in (
    ("plain", "none", {"use_dictionary": False}),
    ("dictionary", "none", {"use_dictionary": True, "write_page_checksum": True}),
    ("snappy_v2", "snappy", {"data_page_version": "2.0", "row_group_size": 13}),
    ("zstd", "zstd", {"write_page_index": True}),
    ("lz4", "lz4", {"use_dictionary": False}),
    ("gzip", "gzip", {"data_page_version": "2.0"}),
    ("delta", "none", {"use_dictionary": False, "column_encoding": {"x": "DELTA_BINARY_PACKED", "k": "DELTA_BINARY_PACKED",
                                                                     "f": "BYTE_STREAM_SPLIT"}}),
):
    which = required if name in ("plain", "snappy_v2") else table
    pq.write_table(which, os.path.join(HERE, name), compression=codec, write_statistics=False, store_schema=False,
                   **options)
pq.write_table(pa.table({"a": [1], "deep": [[[1]]]}), os.path.join(HERE, "nested"), store_schema=False)
