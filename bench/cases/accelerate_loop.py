"""accelerate: prepared loader and optimiser, arrays read from files by one worker."""

# needs: accelerate

import torch
from accelerate import Accelerator
from case import answer, clock_loaders, slow_read
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self) -> int:
        return 160

    def __getitem__(self, i: int) -> torch.Tensor:
        slow_read(10)
        return torch.randn(64)


if __name__ == "__main__":
    clock_loaders()
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(64, 1)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), 0.01), DataLoader(Rows(), batch_size=4, num_workers=1)
    )
    for batch in loader:
        loss = model(batch).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    answer("input-bound", ["storage"], ["TH1", "TH4", "PF1", "CA1", "CA2"])
