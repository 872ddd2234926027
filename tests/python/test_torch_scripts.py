"""Training scripts as people write them, with the real torchvision, timm and Lightning, on millrace.torch.DataLoader: the diffs of doc/start/migrate.md at work.
Everything runs natively, ranks of torchrun read their parts, a checkpoint in the middle of an epoch goes on at the next batch. Part of make test-full.

test-label: full"""
import os
import subprocess
import sys
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from front_end import BINARY, folder, plain_pictures, run, skip  # noqa: E402

if not os.environ.get("MR_TEST_FULL"):
    skip("scripts of other projects are run by make test-full")
try:
    import torch
    import torchvision
    from torchvision import transforms as T
    from torchvision.datasets import ImageFolder
except Exception as reason:
    skip(f"no PyTorch with torchvision ({reason})")

from millrace.torch import DataLoader  # noqa: E402

torch.set_num_threads(1)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TRAIN = os.environ.get("SCRIPT_TRAIN") or plain_pictures("train", "--files", "96", "--dims", "60x80x3", "--subfolders", "4", "--labels", "4")


# ---- in the style of torchvision's references/classification ----


class PresetTrain:
    def __init__(self, crop_size):
        self.transforms = T.Compose([T.RandomResizedCrop(crop_size), T.RandomHorizontalFlip(), T.PILToTensor(), T.ConvertImageDtype(torch.float), T.Normalize(MEAN, STD)])

    def __call__(self, picture):
        return self.transforms(picture)


class PresetEval:
    def __init__(self, crop_size, resize_size):
        self.transforms = T.Compose([T.Resize(resize_size), T.CenterCrop(crop_size), T.PILToTensor(), T.ConvertImageDtype(torch.float), T.Normalize(MEAN, STD)])

    def __call__(self, picture):
        return self.transforms(picture)


def evaluate(model, criterion, loader):
    model.eval()
    seen = right = 0
    with torch.inference_mode():
        for image, target in loader:
            output = model(image)
            criterion(output, target)
            right += (output.argmax(1) == target).sum().item()
            seen += len(target)
    return seen, right


def reference_training(make_loader, rank=0, world=1, epochs=2):
    """What main() of the reference does, with one line for each of its options that matters here."""
    train_set, val_set = ImageFolder(TRAIN, PresetTrain(32).transforms), ImageFolder(TRAIN, PresetEval(32, 40).transforms)
    if world > 1:
        train_sampler = torch.utils.data.distributed.DistributedSampler(train_set)
        val_sampler = torch.utils.data.distributed.DistributedSampler(val_set, shuffle=False)
    else:
        train_sampler, val_sampler = torch.utils.data.RandomSampler(train_set), torch.utils.data.SequentialSampler(val_set)
    collate = torch.utils.data.default_collate
    train = make_loader(train_set, batch_size=16, sampler=train_sampler, num_workers=2, pin_memory=False, collate_fn=collate)
    val = make_loader(val_set, batch_size=16, sampler=val_sampler, num_workers=2, pin_memory=False)
    torch.manual_seed(7)
    model = torchvision.models.resnet18(num_classes=4)
    if world > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    criterion, optimizer = torch.nn.CrossEntropyLoss(), torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    labels = []
    for epoch in range(epochs):
        if world > 1:
            train_sampler.set_epoch(epoch)
        model.train()
        for image, target in train:
            loss = criterion(model(image), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            labels.append(target.tolist())
            assert torch.isfinite(loss) and image.shape[1:] == (3, 32, 32)
    return labels, evaluate(model, criterion, val), (train, val)


def torchvisions_reference():
    torch.manual_seed(1)
    labels, (seen, _), loaders = reference_training(DataLoader)
    assert all(x.native for x in loaders), [x.reason for x in loaders]
    torch.manual_seed(1)
    theirs, _, _ = reference_training(torch.utils.data.DataLoader)
    assert labels == theirs and seen == 96


def under_torchrun():
    """Two processes of torchrun with DistributedDataParallel: the union of what they read is the data set, in torch's order."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", os.path.abspath(__file__), "--rank"]
    env = dict(os.environ, SCRIPT_TRAIN=TRAIN, OMP_NUM_THREADS="1", MR_BINARY_DIR=BINARY)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("rank as torch's") == 2, done.stdout + done.stderr


def rank_of_torchrun():
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    labels, (seen, _), loaders = reference_training(DataLoader, rank, world)
    theirs, _, _ = reference_training(torch.utils.data.DataLoader, rank, world)
    assert all(x.native for x in loaders) and labels == theirs and seen == 48
    # The same without a sampler: the loader takes its part by the environment.
    own = DataLoader(ImageFolder(TRAIN, PresetTrain(32).transforms), batch_size=16, shuffle=True, distributed=True)
    assert [y.tolist() for _ in range(2) for _, y in own] == labels
    print("rank as torch's", flush=True)
    torch.distributed.destroy_process_group()
    sys.exit(0)


# ---- in the style of timm's train.py ----


def timms_training():
    try:
        import timm
        from timm.data import create_dataset, create_transform, resolve_data_config
        from timm.optim import create_optimizer_v2
        from timm.scheduler import create_scheduler_v2
        from timm.utils import AverageMeter, accuracy
    except ImportError as reason:
        print(f"note: no timm ({reason})")
        return
    model = timm.create_model("resnet10t", num_classes=4)
    config = resolve_data_config({"input_size": (3, 64, 64), "interpolation": "bilinear"}, model=model)
    sets = [create_dataset("", root=TRAIN, split="train", is_training=train) for train in (True, False)]
    sets[0].transform = create_transform(64, is_training=True, color_jitter=None, mean=config["mean"], std=config["std"])
    sets[1].transform = create_transform(64, is_training=False, interpolation="bilinear", mean=config["mean"], std=config["std"])
    train = DataLoader(sets[0], batch_size=16, shuffle=True, num_workers=2, drop_last=True)
    val = DataLoader(sets[1], batch_size=24, num_workers=2)
    assert train.native and val.native, (train.reason, val.reason)
    for (x, y), (u, v) in zip(val, torch.utils.data.DataLoader(sets[1], batch_size=24)):
        assert torch.equal(y, v) and (x - u).abs().mean() < 5 / 255
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3)
    scheduler, _ = create_scheduler_v2(optimizer, sched="cosine", num_epochs=2, updates_per_epoch=len(train))
    updates = 0
    for epoch in range(2):
        losses = AverageMeter()
        train.set_epoch(epoch)
        model.train()
        for input, target in train:
            loss = torch.nn.functional.cross_entropy(model(input), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.update(loss.item(), len(input))
            updates += 1
            scheduler.step_update(updates)
        scheduler.step(epoch + 1)
        assert losses.count == 96 and losses.avg == losses.avg
    model.eval()
    top1 = AverageMeter()
    with torch.inference_mode():
        for input, target in val:
            top1.update(accuracy(model(input), target, topk=(1,))[0].item(), len(target))
    assert top1.count == 96


# ---- Lightning ----


def lightnings_trainer():
    try:
        import lightning as L
    except ImportError as reason:
        print(f"note: no Lightning ({reason})")
        return

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.labels, self.pictures, self.checked = torch.nn.Linear(3 * 16 * 16, 4), [], [], 0

        def training_step(self, batch, index):
            x, y = batch
            self.labels.append(y.tolist())
            self.pictures.append(x.sum().item())
            return torch.nn.functional.cross_entropy(self.net(x.flatten(1)), y)

        def validation_step(self, batch, index):
            self.checked += len(batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    t = T.Compose([T.RandomResizedCrop(16), T.RandomHorizontalFlip(), T.ToTensor()])
    v = T.Compose([T.Resize(20), T.CenterCrop(16), T.ToTensor()])

    class Data(L.LightningDataModule):
        def train_dataloader(self):
            return DataLoader(ImageFolder(TRAIN, t), batch_size=10, shuffle=True, num_workers=2, seed=3, generator=torch.Generator().manual_seed(3))

        def val_dataloader(self):
            return DataLoader(ImageFolder(TRAIN, v), batch_size=32)

    options = dict(accelerator="cpu", use_distributed_sampler=False, logger=False, enable_progress_bar=False, enable_model_summary=False,
                   enable_checkpointing=False, default_root_dir=folder)  # fmt: skip
    path = os.path.join(folder, "middle.ckpt")

    class Save(L.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 14:  # in the second epoch
                trainer.save_checkpoint(path)

    whole, second = Module(), Module()
    L.Trainer(max_epochs=2, callbacks=[Save()], **options).fit(whole, Data())
    assert len(whole.labels) == 20 and whole.checked >= 2 * 96
    L.Trainer(max_epochs=2, num_sanity_val_steps=0, **options).fit(second, Data(), ckpt_path=path)
    assert second.labels == whole.labels[14:], (len(second.labels), len(whole.labels))
    assert second.pictures == whole.pictures[14:]  # the very crops and flips


if "--rank" in sys.argv:
    rank_of_torchrun()
warnings.filterwarnings("ignore", module="lightning")
run([torchvisions_reference, under_torchrun, timms_training, lightnings_trainer])
