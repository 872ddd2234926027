"""A small training that starves: pictures are decoded by the loop itself (num_workers=0) while the model waits.

    millrace gen /data/pictures --format jpeg --files 400 --dims 375x500x3 --subfolders 10
    millrace trace -o train.mrt -- python examples/pytorch/train.py /data/pictures/train
    millrace report train.mrt

With `--loader millrace` the same loop takes its batches from millrace.torch.DataLoader."""

import argparse

import torch
import torchvision
from torchvision import transforms as T

parser = argparse.ArgumentParser()
parser.add_argument("pictures", help="a folder of class folders")
parser.add_argument("--loader", choices=("torch", "millrace"), default="torch")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--steps", type=int, default=20)
args = parser.parse_args()

if args.loader == "millrace":
    from millrace.torch import DataLoader
else:
    from torch.utils.data import DataLoader

transform = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor()])
dataset = torchvision.datasets.ImageFolder(args.pictures, transform)
loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=args.workers)
model = torchvision.models.shufflenet_v2_x0_5(num_classes=10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step, (images, labels) in enumerate(loader):
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step + 1 == args.steps:
        break
print(f"{args.steps} steps, loss {loss.item():.2f}")
