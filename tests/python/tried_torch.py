"""A training for trials: tried_torch.py WAY STEPS. starved: one worker, which sleeps for each row. healthy: nothing to gain. iterable: a stream that does not
divide itself among workers. random: rows take what chance says. saves: checkpoints as people write them, in tried_torch.py saves STEPS FOLDER. Rows are checked: a batch has those of the sampler, whoever loads them."""
import os
import random
import shutil
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

WAY, STEPS, BATCH = sys.argv[1], int(sys.argv[2]), 4
SLEEP = {"starved": 0.008, "healthy": 0.0005, "iterable": 0.008, "random": 0.008, "saves": 0.0005}[WAY]


class Rows(Dataset):
    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, i):
        time.sleep(SLEEP * (random.expovariate(1) if WAY == "random" else 1))
        return torch.full((16,), float(i))


class Stream(IterableDataset):
    def __iter__(self):
        for i in range(STEPS * BATCH):
            time.sleep(SLEEP)
            yield torch.full((16,), float(i))


def save(folder, step, model, kept):
    """A temporary name, a copy of the best one, a file object, the newest two kept."""
    state = {"weights": torch.zeros(1 << 20), "model": model.state_dict(), "step": step}
    name = os.path.join(folder, "step-%d.pt" % step)
    torch.save(state, name + ".new.pt")
    os.replace(name + ".new.pt", name)
    shutil.copyfile(name, os.path.join(folder, "best.pt"))
    with open(os.path.join(folder, "last.pt"), "wb") as f:
        torch.save(state, f)
    kept.append(name)
    if len(kept) > 2:
        os.remove(kept.pop(0))
    assert os.path.exists(name) and torch.load(os.path.join(folder, "best.pt"))["step"] == step


def main():
    torch.set_num_threads(1)
    torch.manual_seed(3)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = Stream() if WAY == "iterable" else Rows()
    loader = DataLoader(
        data,
        batch_size=BATCH,
        shuffle=WAY != "iterable",
        num_workers=1,
    )
    kept = []
    for step, rows in enumerate(loader):
        optimizer.zero_grad()
        model(rows).mean().backward()
        time.sleep(0.01 if WAY != "healthy" else 0.03)
        optimizer.step()
        if WAY == "saves" and step % 8 == 7:
            save(sys.argv[3], step, model, kept)
        elif WAY != "saves" and len(sys.argv) > 3:
            with open(sys.argv[3], "a") as f:
                f.write("%d %d %s\n" % (os.getpid(), step, rows[:, 0].tolist()))


if __name__ == "__main__":
    main()
