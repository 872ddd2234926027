#!/usr/bin/env python3
"""Is the accelerator fed? Trains ResNet-50, ResNet-18 and AlexNet on JPEG pictures with synthetic data (the ceiling), torch's own
DataLoader and millrace.torch.DataLoader, in turn, and says images/s and how long the accelerator idled (CUDA events).

    python3 bench/run_gpu.py --wheel millrace-*.whl [--out results.json] [--seconds 8] [--models resnet50,resnet18,alexnet]

Needs PyTorch with CUDA, torchvision and Pillow, and nothing else: the wheel is unpacked beside the data, and its own command makes the
data set: 6,000 JPEG pictures of 375 x 500 pixels, 110 kB each, 100 classes, which the page cache holds. Everything ends within eight
minutes; `--quick` is a trial of one minute. Batch 256, bf16 autocast, channels_last, RandomResizedCrop(224), flip, normalise."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile

DECODE = {"millrace-hybrid": "hybrid", "millrace-gpu": "gpu"}
MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def say(*words):
    print(*words, file=sys.stderr, flush=True)


def unpack(wheel, folder):
    """A wheel is a zip file; an installed package is what is in it."""
    with zipfile.ZipFile(wheel) as z:
        z.extractall(folder)
        for info in z.infolist():
            if info.external_attr >> 16 & 0o111:
                os.chmod(os.path.join(folder, info.filename), 0o755)
    sys.path.insert(0, folder)


def make_pictures(folder, count):
    import millrace

    start = time.monotonic()
    program = os.path.join(millrace.home(), "bin", "millrace")
    subprocess.run(
        [program, "-q", "gen", folder, "--format", "jpeg", "--files", str(count), "--dims", "375x500x3", "--subfolders", "100",
         "--labels", "100"], check=True, stdout=sys.stderr)  # fmt: skip
    root = os.path.join(folder, "train")
    os.unlink(os.path.join(root, "manifest.mrm"))  # a plain folder of class folders, as anybody's
    size = sum(os.path.getsize(os.path.join(d, f)) for d, _, fs in os.walk(root) for f in fs)
    say(f"made {count} pictures, {size / count / 1e3:.0f} kB each, in {time.monotonic() - start:.0f} s")
    return root


class Feed:
    """Batches for ever, epoch after epoch, on the accelerator."""

    def __init__(self, args, root, kind, batch):
        kind, _, threads = kind.partition("@")  # millrace-hybrid@14: with 14 threads
        self.kind, self.batch = kind, batch
        import torch
        from torchvision import datasets
        from torchvision import transforms as T

        self.torch = torch
        transform = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])
        self.loader = None
        if kind == "synthetic":
            self.images = torch.randn(batch, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)
            self.labels = torch.randint(0, 100, (batch,), device="cuda")
        elif kind == "torch":
            self.loader = torch.utils.data.DataLoader(
                datasets.ImageFolder(root, transform), batch, shuffle=True, num_workers=args.workers, pin_memory=True,
                drop_last=True, persistent_workers=True, prefetch_factor=4)  # fmt: skip
        else:
            import millrace.torch

            self.loader = millrace.torch.DataLoader(
                datasets.ImageFolder(root, transform), batch, shuffle=True, num_workers=int(threads or args.threads), drop_last=True, device="cuda",
                uint8_transfer=kind == "millrace", channels_last=True, prefetch_factor=6, decode=DECODE.get(kind, "cpu"))  # fmt: skip
            assert self.loader.native, self.loader.reason

    def __iter__(self):
        if self.kind == "synthetic":
            while True:
                yield self.images, self.labels
        while True:
            for images, labels in self.loader:
                if self.kind == "torch":
                    images = images.to("cuda", non_blocking=True, memory_format=self.torch.channels_last)
                    labels = labels.to("cuda", non_blocking=True)
                yield images, labels

    def told(self):
        """What the loader says of the work that it shared with the accelerator, for each batch."""
        stats = self.loader.stats() if self.kind in DECODE else None
        if not stats or not stats["batches"]:
            return ""
        times = [1e3 * stats[f"device_{what}_s"] / stats["batches"] for what in ("waited", "worked", "blocked")]
        return f", {stats['device_rows']} rows of a batch there; waited {times[0]:.1f}, worked {times[1]:.1f}, blocked {times[2]:.1f} ms"

    def close(self):
        if self.kind.startswith("millrace"):
            self.loader.close()
        self.loader = None


def measure_alone(args, root, kind, batch):
    """The loader without a model: its batches are brought to the accelerator and dropped."""
    import torch

    feed = Feed(args, root, kind, batch)
    it = iter(feed)
    for _ in range(8):
        next(it)
    torch.cuda.synchronize()
    start, n = time.perf_counter(), 0
    while time.perf_counter() - start < args.seconds / 2:
        n += len(next(it)[0])
    torch.cuda.synchronize()
    rate = n / (time.perf_counter() - start)
    say(f"{kind} alone: {rate:.0f} images/s{feed.told()}")
    del it
    feed.close()
    return rate


def look_at_decoder(root):
    """What the accelerator's decoder and the resize cost, and how its pictures differ from the CPU's."""
    import torch
    from millrace import _device
    from millrace.torch import DataLoader
    from torchvision import transforms as T

    files = [os.path.join(d, f) for d, _, fs in os.walk(root) for f in fs][:256]
    data = [torch.frombuffer(bytearray(open(f, "rb").read()), dtype=torch.uint8) for f in files]
    device, stream = torch.device("cuda"), torch.cuda.Stream(priority=-1)
    decoder = _device.Decoder(device, (224, 224), False)
    say("resize: one kernel" if not decoder.why_no_kernel else f"resize: torch's operators, because {decoder.why_no_kernel}")
    plan = torch.tensor([[30, 40, 300, 320, 30, 40, 300, 320, 224, 224, 0, 0, 1, 0, 0, 224, 224]], dtype=torch.int32)
    room = torch.zeros(256, 224, 224, 3, dtype=torch.uint8, device=device)
    with torch.cuda.stream(stream):
        for n in (32, 96, 256):
            times = []
            for _ in range(6):
                torch.cuda.synchronize()
                start = time.perf_counter()
                _device.decode_jpegs(data[:n], device)
                torch.cuda.synchronize()
                middle = time.perf_counter()
                decoder.fill(room[:n], _device.Stored(list(range(n)), data[:n], list(range(n)), 0), lambda *_: plan.repeat(n, 1))
                launched = time.perf_counter()
                torch.cuda.synchronize()
                times.append((middle - start, launched - middle, time.perf_counter() - middle))
            best = [1e3 * min(t[i] for t in times) for i in range(3)]
            say(f"{n:4} pictures: decoded in {best[0]:.1f} ms ({n / best[0] * 1e3:.0f}/s); decoded and resized: launched in {best[1]:.1f}, done in {best[2]:.1f} ms")
    t = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.PILToTensor()])
    one, two = DataLoader(root, 256, transform=t, seed=1, device="cuda"), DataLoader(root, 256, transform=t, seed=1, device="cuda", decode="gpu")
    x, u = next(iter(one))[0].float(), next(iter(two))[0].float()
    say(f"pictures of both differ by {(x - u).abs().mean().item():.3f} of 255 in the mean, at most {(x - u).abs().max().item():.0f}")
    one.close(), two.close()


class Trainer:
    def __init__(self, name, batch):
        import torch
        import torchvision

        self.torch = torch
        torch.manual_seed(0)
        self.model = getattr(torchvision.models, name)(num_classes=100).cuda().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, momentum=0.9)
        self.loss = torch.nn.CrossEntropyLoss()

    def step(self, images, labels):
        with self.torch.autocast("cuda", dtype=self.torch.bfloat16):
            loss = self.loss(self.model(images), labels)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()


def measure(args, trainer, feed, seconds):
    """images/s and the share of time in which the accelerator had no step to work on."""
    torch = trainer.torch
    it = iter(feed)
    begin, steps = time.perf_counter(), 0
    while steps < args.warmup or time.perf_counter() - begin < 2:  # what adapts itself has found its place then
        trainer.step(*next(it))
        steps += 1
        if steps % 3 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    spans, start, n = [], time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        images, labels = next(it)
        span = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        span[0].record()
        trainer.step(images, labels)
        span[1].record()
        spans.append(span)
        n += len(images)
        if len(spans) > 3:
            spans[-3][1].synchronize()  # the host runs two steps ahead, not more
    torch.cuda.synchronize()
    wall = time.perf_counter() - start
    total = spans[0][0].elapsed_time(spans[-1][1])
    busy = sum(a.elapsed_time(b) for a, b in spans)
    return n / wall, max(0.0, 1 - busy / total)


def run_model(args, root, name, kinds, results):
    import torch

    trainer = Trainer(name, args.batch)
    rates = {kind: [] for kind in kinds}
    idles = {kind: [] for kind in kinds}
    for _ in range(args.rounds):
        for kind in kinds:
            if time.monotonic() > args.deadline:
                say("out of time: the remaining measurements are left out")
                break
            feed = Feed(args, root, kind, args.batch)
            rate, idle = measure(args, trainer, feed, args.seconds if kind != "synthetic" else args.seconds / 2)
            told = feed.told()
            feed.close()
            rates[kind].append(rate)
            idles[kind].append(idle)
            say(f"{name:10} {kind:13} {rate:9.0f} images/s, idle {100 * idle:5.1f} %{told}")
    del trainer
    torch.cuda.empty_cache()
    for kind in kinds:
        if rates[kind]:
            results.append({"model": name, "feed": kind, "images_per_s": statistics.median(rates[kind]), "rounds_images_per_s": rates[kind],
                            "accelerator_idle_ratio": statistics.median(idles[kind])})  # fmt: skip


def show(results, alone):
    print("| model | feed | images/s | of synthetic | times torch | accelerator idle |\n|---|---|---|---|---|---|")
    by = {(r["model"], r["feed"]): r["images_per_s"] for r in results}
    for r in results:
        top, peer = by.get((r["model"], "synthetic")), by.get((r["model"], "torch"))
        share = f"{r['images_per_s'] / top:.2f}" if top else "-"
        times = f"{r['images_per_s'] / peer:.2f}" if peer else "-"
        print(f"| {r['model']} | {r['feed']} | {r['images_per_s']:.0f} | {share} | {times} | {100 * r['accelerator_idle_ratio']:.1f} % |")
    for kind, rate in alone.items():
        print(f"\n{kind} alone: {rate:.0f} images/s", end="")
    print()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", help="the wheel to measure; default: the package that is installed")
    parser.add_argument("--out", help="JSON with the results")
    parser.add_argument("--models", default="resnet50,resnet18,alexnet")
    parser.add_argument("--feeds", default="synthetic,torch,millrace,millrace-f32,millrace-hybrid,millrace-gpu")
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--warmup", type=int, default=12)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--files", type=int, default=6000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", type=float, default=460, help="seconds after which nothing new is started")
    parser.add_argument("--quick", action="store_true", help="one round of two seconds")
    args = parser.parse_args()
    if args.quick:
        args.seconds, args.rounds = 2, 1
    args.deadline = time.monotonic() + args.limit
    fast = "/dev/shm" if shutil.disk_usage("/dev/shm").free > 4 << 30 else None
    folder = tempfile.mkdtemp(prefix="millrace-gpu-", dir=fast)
    try:
        if args.wheel:
            unpack(args.wheel, os.path.join(folder, "package"))
        import millrace
        import torch

        root = make_pictures(os.path.join(folder, "pictures"), args.files)
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = True
        kinds, results = args.feeds.split(","), []
        if {kind.partition("@")[0] for kind in kinds} & set(DECODE):
            look_at_decoder(root)
        alone = {kind: measure_alone(args, root, kind, args.batch) for kind in kinds if kind != "synthetic"}
        for name in args.models.split(","):
            run_model(args, root, name, kinds, results)
        show(results, alone)
        facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "millrace": millrace.version,
                 "cpus": len(os.sched_getaffinity(0)), "batch": args.batch, "pictures": args.files, "threads": args.threads,
                 "workers": args.workers, "alone_images_per_s": alone, "results": results}  # fmt: skip
        if args.out:
            with open(args.out, "w") as f:
                json.dump(facts, f, indent=1)
        else:
            print(json.dumps(facts))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
