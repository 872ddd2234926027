"""pyarrow: an iterable data set of row groups, decompressed by pyarrow's own threads."""

# needs: pyarrow

import os

import numpy
import pyarrow
import pyarrow.parquet
import torch
from case import FOLDER, answer, step, take
from torch.utils.data import DataLoader, IterableDataset

path = os.path.join(FOLDER, "t.parquet")
words = numpy.random.default_rng(1).integers(0, 1 << 24, 2000000)
table = pyarrow.table({"c%d" % i: numpy.roll(words, i).astype(str) for i in range(8)})
pyarrow.parquet.write_table(table, path, row_group_size=100000, compression="zstd", use_dictionary=False)


class Groups(IterableDataset):
    def __iter__(self) -> object:
        file = pyarrow.parquet.ParquetFile(path)
        for i in range(file.num_row_groups):
            group = file.read_row_group(i)
            yield torch.full((64,), float(len(group["c0"][0].as_py())))


for batch in take(DataLoader(Groups(), batch_size=1)):
    step(batch, 20)
answer("input-bound", ["decode"], ["PF1", "TH2", "CPU1"])
