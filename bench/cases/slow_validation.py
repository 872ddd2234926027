"""Training data in memory; validation decodes its rows in the loop, after every ten steps."""

import torch
from case import answer, burn, model, step, take
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Rows(Dataset):
    def __len__(self) -> int:
        return 48

    def __getitem__(self, i: int) -> torch.Tensor:
        burn(6)
        return torch.randn(64)


validation = DataLoader(Rows(), batch_size=8)
for i, (batch,) in enumerate(take(DataLoader(TensorDataset(torch.randn(400, 64)), batch_size=8))):
    step(batch, 20)
    if i % 10 == 9:
        model.eval()
        with torch.no_grad():
            for rows in take(validation):
                model(rows)
        model.train()
answer("input-bound", ["decode"], ["EV1"])
