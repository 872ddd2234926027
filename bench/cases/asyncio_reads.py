"""An event loop in the data set, with reads in its executor."""

import asyncio

import torch
from case import answer, slow_read, step, take
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self) -> int:
        return 90

    def __getitem__(self, i: int) -> torch.Tensor:
        async def read() -> None:
            loop = asyncio.get_running_loop()
            await asyncio.gather(*(loop.run_in_executor(None, slow_read, 10) for _ in range(2)))

        asyncio.run(read())
        return torch.randn(64)


for batch in take(DataLoader(Rows(), batch_size=3)):
    step(batch)
answer("input-bound", ["storage"])
