"""Rows are pickles in SQLite: one query each, unpickled and scaled in the worker."""

import os
import pickle
import sqlite3

import numpy
import torch
from case import FOLDER, answer, step, take
from torch.utils.data import DataLoader, Dataset

path = os.path.join(FOLDER, "rows.db")
with sqlite3.connect(path) as base:
    base.execute("create table rows (id integer primary key, blob blob)")
    for i in range(200):
        base.execute("insert into rows values (?, ?)", (i, pickle.dumps(list(map(float, numpy.random.rand(60000))))))


class Rows(Dataset):
    base = None

    def __len__(self) -> int:
        return 200

    def __getitem__(self, i: int) -> torch.Tensor:
        self.base = self.base or sqlite3.connect(path)
        row = pickle.loads(self.base.execute("select blob from rows where id = ?", (i,)).fetchone()[0])
        return torch.tensor(row)[:64]


for batch in take(DataLoader(Rows(), batch_size=4, num_workers=1)):
    step(batch, 10)
answer("input-bound", ["decode"], ["TH2", "CPU1", "PF1"])
