"""autocast and GradScaler, clipping, a scheduler, accumulation over two batches; reads by one worker."""

import torch
from case import answer, model, optimizer, slow_read, take
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __len__(self) -> int:
        return 200

    def __getitem__(self, i: int) -> torch.Tensor:
        slow_read(6)
        return torch.randn(64)


scaler = torch.cuda.amp.GradScaler(enabled=False)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10)
wide = torch.nn.Linear(64, 3000)
for i, batch in enumerate(take(DataLoader(Rows(), batch_size=5, num_workers=1))):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for _ in range(20):
            wide(batch)
        loss = model(batch).float().mean() / 2
    scaler.scale(loss).backward()
    if i % 2:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        schedule.step()
answer("input-bound", ["storage"], ["TH1", "CA1", "TH4"])
