"""Hugging Face's Trainer over a data set with a transform that takes CPU time."""

# needs: transformers datasets accelerate

import os

import torch
import transformers
from case import FOLDER, answer, burn, clock_loaders
from datasets import Dataset


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, 1)

    def forward(self, x: torch.Tensor, labels: "torch.Tensor | None" = None) -> dict:
        for _ in range(20):
            y = torch.relu(x @ torch.ones(64, 64))
        return {"loss": (self.linear(x) - y.mean()).square().mean()}


def decode(rows: dict) -> dict:
    burn(4 * len(rows["seed"]))
    return {"x": [torch.randn(64) for _ in rows["seed"]]}


if __name__ == "__main__":
    clock_loaders()
    arguments = transformers.TrainingArguments(
        os.path.join(FOLDER, "out"), per_device_train_batch_size=8, num_train_epochs=1, report_to=[], use_cpu=True,
        save_strategy="no", remove_unused_columns=False, disable_tqdm=True, logging_steps=5,
    )  # fmt: skip
    data = Dataset.from_dict({"seed": list(range(400))}).with_transform(decode)
    transformers.Trainer(model=Model(), args=arguments, train_dataset=data).train()
    answer("input-bound", ["decode", "transform"], ["PF1", "TH2", "CPU1"])
