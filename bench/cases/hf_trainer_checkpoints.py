"""Hugging Face's Trainer that saves 60 MB every ten steps."""

# needs: transformers accelerate

import os

import case
import torch
import transformers
from case import FOLDER, answer, clock_loaders


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(20000, 256)
        self.linear = torch.nn.Linear(64, 1)

    def forward(self, x: torch.Tensor, labels: "torch.Tensor | None" = None) -> dict:
        y = self.table(torch.arange(64))
        return {"loss": (self.linear(x) - y.mean()).square().mean()}


if __name__ == "__main__":
    clock_loaders()
    case.clock_saves(transformers.Trainer, "_save_checkpoint")
    arguments = transformers.TrainingArguments(
        os.path.join(FOLDER, "out"), per_device_train_batch_size=8, num_train_epochs=1, report_to=[], use_cpu=True,
        save_steps=10, save_total_limit=1, remove_unused_columns=False, disable_tqdm=True,
    )  # fmt: skip
    data = [{"x": torch.randn(64)} for _ in range(320)]
    transformers.Trainer(model=Model(), args=arguments, train_dataset=data).train()
    answer("checkpoint-bound", None, ["CK1", "CK2", "CK4"], saved_s=case.saved)
