"""A thread saves a copy while training goes on: nothing waits for it."""

import copy
import os
import threading

import torch
from case import FOLDER, answer, step, take
from torch.utils.data import DataLoader, TensorDataset

state, saver = {"weights": torch.randn(2000000)}, None
for i, (batch,) in enumerate(take(DataLoader(TensorDataset(torch.randn(480, 64)), batch_size=8))):
    step(batch, 30)
    if i % 20 == 19:
        if saver:
            saver.join()
        saver = threading.Thread(target=torch.save, args=(copy.deepcopy(state), os.path.join(FOLDER, "%d.pt" % i)))
        saver.start()
saver.join()
answer("healthy", first=[])
