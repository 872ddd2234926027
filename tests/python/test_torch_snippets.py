"""Every Python block of README.md and doc/ runs: /data becomes folders of this test, CUDA the CPU, sizes and epochs small. What a block
presupposes (a model, a loader) stands in BEFORE. A block that needs a framework or version which is not here is listed as skipped."""
import glob
import io
import os
import re
import subprocess
import tarfile
import time
import types

import numpy as np
import PIL.Image

from front_end import MILLRACE, folder, plain_pictures, run, skip

try:
    import torch
    import torchvision  # noqa: F401
except ImportError as why:
    skip(f"no PyTorch or torchvision: {why}")

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
# In the text of a block, in this order.
ADAPT = [
    (r"/data/imagenet/(train|val)", lambda m: pictures()),
    (r"/data/set", lambda m: pictures()),
    (r"/data/climate", lambda m: climate()),
    (r"/data/shards", lambda m: shards()),
    (r'"ckpt', lambda m: '"' + os.path.join(folder, "ckpt")),
    (r"s3://bucket/job", lambda m: os.path.join(folder, "bucket")),  # test_s3_checkpoint has the server
    (r"/dev/shm/job", lambda m: os.path.join(folder, "tier")),
    (r"/dev/shm/near", lambda m: os.path.join(folder, "near")),
    (r'"checkpoint.pt"', lambda m: repr(os.path.join(folder, "checkpoint.pt"))),
    (r'device="cuda"', lambda m: 'device="cpu"'),
    (r'map_location="cuda"', lambda m: 'map_location="cpu"'),
    (r'autocast\("cuda"', lambda m: 'autocast("cpu"'),
    (r"\.cuda\(\)", lambda m: ""),
    (r"resnet50\(\)", lambda m: "shufflenet_v2_x0_5(num_classes=10)"),
    (r"batch_size=256", lambda m: "batch_size=8"),
    (r", 256,", lambda m: ", 8,"),
    (r"range\((3|90)\)", lambda m: "range(1)"),
    (r"epochs=90", lambda m: "epochs=1"),
    (r"num_workers=\d+|threads=\d+", lambda m: m.group().split("=")[0] + "=2"),
]
if int(torch.__version__.split(".")[0]) < 2:  # overlapped saves say that they need PyTorch 2
    ADAPT.append((r", overlapped=True", lambda m: ""))
_pictures = []


def pictures():
    if not _pictures:
        _pictures.append(plain_pictures("snippets", "--files", "16", "--dims", "60x80x3", "--subfolders", "2"))
        subprocess.run([MILLRACE, "-q", "scan", _pictures[0]], check=True, stdout=subprocess.DEVNULL)
    return _pictures[0]


def climate():
    """A set of two fields, as the page about fields has it."""
    path = os.path.join(folder, "climate")
    if not os.path.exists(path):
        fields = "data:f4:4x8x12,labels:i4:8x12:target"
        subprocess.run([MILLRACE, "-q", "gen", path, "--format", "hdf5", "--files", "2", "--samples-per-file", "8", "--fields", fields],
                       check=True, stdout=subprocess.DEVNULL)
    return path


def shards():
    """Pictures with masks and boxes in a tar shard."""
    path = os.path.join(folder, "shards")
    if not os.path.exists(path):
        os.makedirs(path)
        with tarfile.open(os.path.join(path, "0.tar"), "w") as tar:
            for i in range(40):
                for ext, kind, shape in (("jpg", "jpeg", (60, 80, 3)), ("mask.png", "png", (60, 80)), ("boxes.npy", "", (i % 3, 4))):
                    data = io.BytesIO()
                    array = np.full(shape, i, np.uint8 if kind else np.float32)
                    PIL.Image.fromarray(array).save(data, kind) if kind else np.save(data, array)
                    info = tarfile.TarInfo(f"{i:04d}.{ext}")
                    info.size = data.tell()
                    data.seek(0)
                    tar.addfile(info, data)
                cls = tarfile.TarInfo(f"{i:04d}.cls")
                cls.size = 1
                tar.addfile(cls, io.BytesIO(str(i % 5).encode()))
        subprocess.run([MILLRACE, "-q", "scan", path], check=True, stdout=subprocess.DEVNULL)
    return path


def training():
    """What pages about states presuppose: a small model, its optimiser, a loader of ours and a step."""
    from millrace.torch import DataLoader

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    data = torch.utils.data.TensorDataset(torch.arange(64.0).reshape(16, 4))

    def train(batch):
        optimizer.zero_grad()
        model(batch[0]).sum().backward()
        optimizer.step()

    return {"torch": torch, "model": model, "optimizer": optimizer, "loader": DataLoader(data, batch_size=4), "train": train, "step": 0,
            "state_dict": {"model": model.state_dict()}, "time": time}


def segmentation():
    """What the page about fields presupposes: a model and a loss of pixels. Generated labels are arbitrary integers."""
    loss = torch.nn.CrossEntropyLoss()
    return {"model": torch.nn.Conv2d(4, 3, 1), "criterion": lambda scores, labels: loss(scores, labels.remainder(3))}


def jax_training():
    return {"params": 0.0, "train_step": lambda params, batch: params + batch["data"].mean(), "save": lambda params, state: None}


BEFORE = {"doc/guides/state.md": training, "doc/guides/object.md": training, "README.md": training, "doc/guides/python.md": lambda: jax_training(), "doc/guides/fields.md": segmentation}


def blocks():
    pages = ["README.md"] + sorted(os.path.relpath(p, ROOT) for p in glob.glob(os.path.join(ROOT, "doc", "**", "*.md"), recursive=True))
    for page in pages:
        with open(os.path.join(ROOT, page), encoding="utf-8") as f:
            text = f.read()
        for m in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            yield page, text[: m.start()].count("\n") + 2, m.group(1)


def missing(code):
    """The module that a block needs and that is not here."""
    needs = {"tensorflow": "tensorflow", "jax": "jax", "lightning": "lightning"}
    for name, module in needs.items():
        if re.search(rf"^(import|from) {name}", code, re.MULTILINE):
            try:
                __import__(module)
            except ImportError:
                return module
    if "torch.distributed.checkpoint" in code:
        try:
            from torch.distributed.checkpoint import save  # noqa: F401
        except ImportError:
            return "torch.distributed.checkpoint of PyTorch 2"
    return None


def run_block(page, line, code):
    for pattern, new in ADAPT:
        code = re.sub(pattern, new, code)
    module = types.ModuleType("snippet")
    module.__dict__.update(BEFORE.get(page, dict)())
    torch.manual_seed(0)
    # The line numbers of a traceback are those of the page.
    exec(compile("\n" * (line - 1) + code, page, "exec"), module.__dict__)


def every_block_of_the_documentation_runs():
    ran, skipped = [], []
    os.chdir(folder)
    for page, line, code in blocks():
        lacks = missing(code)
        if lacks:
            skipped.append(f"{page}:{line} (no {lacks})")
            continue
        run_block(page, line, code)
        ran.append(f"{page}:{line}")
    print("ran:", ", ".join(ran))
    print("not run:", ", ".join(skipped) or "none")
    assert len(ran) >= 4, ran


torch.set_num_threads(1)
run([every_block_of_the_documentation_runs])
