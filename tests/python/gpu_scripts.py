"""Training loops on a real GPU, which `make test` has not. Run it by hand on a machine with one:

    MILLRACE=build/bin/millrace python3 tests/python/gpu_scripts.py [WAY ...]

Each way of training has its own clock: what the loop waited for its batches, and CUDA events around the work of each step, between which the GPU was idle.
`millrace trace` and `millrace report` must find the same seconds (within 10 %, or 60 ms), the class, the cause and a first finding of the right kind. Prints a
line for each way and ends with status 0 if all agree.

`gpu_scripts.py --train WAY FOLDER` is one of these programs."""
import hashlib
import json
import mmap
import os
import subprocess
import sys
import tempfile
import time

STEPS, ROWS = 60, 8
# way: workers, seconds of work for a row, milliseconds of GPU work in a step; class, causes, first findings (None: any)
WAYS = {
    "healthy": (4, 0.0005, 30, "healthy", None, None),
    "decode": (2, 0.01, 10, "input-bound", {"decode"}, {"TH2"}),
    "storage": (1, 0, 4, "input-bound", {"storage"}, {"TH1", "PF1", "TH4"}),
    "sync": (2, 0.01, 10, "input-bound", {"decode"}, {"TH2"}),
    "none": (0, 0.005, 10, "input-bound", {"decode"}, {"PF1"}),
    "hidden": (0, 0.002, 60, "healthy", None, None),
    "accumulate": (2, 0.01, 10, "input-bound", {"decode"}, {"TH2"}),
    "save": (4, 0.0005, 20, "checkpoint-bound", None, {"CK1", "CK2", "CK4"}),
    "evaluate": (4, 0.0005, 30, "input-bound", None, {"EV1"}),
    "amp": (2, 0.01, 10, "input-bound", {"decode"}, {"TH2"}),
    "compile": (2, 0.01, 10, "input-bound", {"decode"}, {"TH2"}),
    "graph": (4, 0.0005, 30, "healthy", None, None),
    "stream": (2, 0.01, 10, "input-bound", {"decode"}, {"TH2"}),
    "lightning": (2, 0.01, 10, "input-bound", {"decode"}, {"TH2"}),
    "trainer": (2, 0.01, 10, "input-bound", {"decode"}, {"TH2"}),
    "nccl": (4, 0.0005, 10, "healthy", None, None),
    "gloo": (2, 0.01, 10, "input-bound", {"decode"}, {"TL2"}),
    "hand": (0, 0, 10, "input-bound", {"page_cache", "storage", "decode"}, {"PF1"}),
    "handhidden": (0, 0, 60, "healthy", None, None),
}


# ---- one program ----

def train(way, folder):
    import torch
    from torch.utils.data import DataLoader, Dataset

    workers, work, gpu_ms = WAYS[way][:3]
    rank = int(os.environ.get("LATE_RANK", 1))

    class Rows(Dataset):
        def __init__(self, n, seconds):
            self.n, self.seconds = n, seconds

        def __len__(self):
            return self.n

        def __getitem__(self, i):
            end = time.thread_time() + self.seconds
            while time.thread_time() < end:
                hashlib.sha256(bytes(1 << 18)).digest()
            if way == "storage":
                fd = os.open(os.path.join(folder, "data"), os.O_RDONLY | os.O_DIRECT)
                memory = mmap.mmap(-1, 8 << 20)
                os.preadv(fd, [memory], (8 << 20) * (i % 64))
                os.close(fd)
            return torch.full((64,), float(i % 7) - 3), i % 10

    torch.set_num_threads(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
    if way in ("nccl", "gloo"):
        model, rank = distribute(torch, model, way)
    if way == "gloo" and rank != 1:
        work = 0
    if way == "compile":
        model = torch.compile(model)
    weights = torch.randn(4096, 4096, device="cuda")
    rounds = calibrate(torch, weights, gpu_ms)
    loader = DataLoader(Rows(ROWS * STEPS, work), batch_size=ROWS, num_workers=workers, pin_memory=True)
    if way in ("lightning", "trainer"):
        told = framework(torch, way, folder, model, loader, weights, rounds)
    else:
        told = loop(torch, way, folder, model, loader, weights, rounds, Rows)
    told.update(rank=rank)
    os.write(1, (json.dumps(told) + "\n").encode())


def calibrate(torch, weights, ms):
    for timed in (False, True):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(200):
            weights @ weights
        torch.cuda.synchronize()
    return max(1, int(ms / ((time.perf_counter() - start) * 1000 / 200)))


def distribute(torch, model, way):
    import torch.distributed as dist

    if way == "gloo":
        dist.init_process_group("gloo")
        return torch.nn.parallel.DistributedDataParallel(model), dist.get_rank()
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:29533", rank=0, world_size=1)
    model = torch.nn.parallel.DistributedDataParallel(model)
    side = torch.cuda.Stream()

    def late(state, bucket):  # the other ranks come 20 ms late: the stream waits, the host does not
        future = torch.futures.Future(devices=["cuda:0"])
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            torch.cuda._sleep(int(20e-3 * 1.98e9))
            future.set_result(bucket.buffer())
        return future

    model.register_comm_hook(None, late)
    return model, 0


class Marks:
    """Events around the GPU work of a step; between two steps the GPU is idle."""

    def __init__(self, torch):
        self.torch, self.begin, self.end = torch, [], []

    def mark(self, where):
        event = self.torch.cuda.Event(enable_timing=True)
        event.record()
        where.append(event)

    def idle_s(self):
        self.torch.cuda.synchronize()
        return sum(e.elapsed_time(b) for e, b in zip(self.end, self.begin[1:])) / 1000


def prefetched(torch, loader):
    """One batch ahead on a stream of its own, as many scripts have it."""
    side, last = torch.cuda.Stream(), None
    for batch in loader:
        with torch.cuda.stream(side):
            moved = [x.cuda(non_blocking=True) for x in batch]
        if last is not None:
            yield last
        torch.cuda.current_stream().wait_stream(side)
        last = moved
    yield last


def by_hand(torch, folder):
    """No data loader: the loop reads arrays itself."""
    import numpy

    path = os.path.join(folder, "rows.npy")
    numpy.save(path, numpy.zeros((16, 1 << 20), dtype="float32"))
    for i in range(STEPS):
        rows = numpy.load(path)
        yield torch.from_numpy(rows[:ROWS, :64].copy()), torch.zeros(ROWS, dtype=torch.long)


def loop(torch, way, folder, model, loader, weights, rounds, rows):
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    scaler = torch.amp.GradScaler("cuda", enabled=way == "amp")
    state = torch.zeros(256 << 20, device="cuda") if way == "save" else None
    replay = capture(torch, weights, rounds) if way == "graph" else None
    if way == "compile":
        model(torch.zeros(ROWS, 64, device="cuda")).sum().backward()  # compiling is not part of the loop
    marks, waited, saved, n = Marks(torch), 0.0, 0.0, 0
    begin = before = time.perf_counter()
    batches = prefetched(torch, loader) if way == "stream" else by_hand(torch, folder) if way.startswith("hand") else loader
    for data, label in batches:
        waited += time.perf_counter() - before
        marks.mark(marks.begin)
        data, label = data.cuda(non_blocking=True), label.cuda(non_blocking=True)
        with torch.autocast("cuda", dtype=torch.float16, enabled=way == "amp"):
            loss = torch.nn.functional.cross_entropy(model(data), label)
        scaler.scale(loss).backward()
        if replay:
            replay.replay()
        for _ in range(0 if replay else rounds):
            weights @ weights
        if way != "accumulate" or n % 4 == 3:
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        if way == "sync":
            loss.item()
        marks.mark(marks.end)
        n += 1
        if way == "save" and n % 10 == 0:
            torch.cuda.synchronize()
            start = time.perf_counter()
            torch.save({"model": model.state_dict(), "state": state}, os.path.join(folder, "saved.pt"))
            saved += time.perf_counter() - start
        before = time.perf_counter()
    idle = marks.idle_s()
    if way == "evaluate":
        waited += evaluate(torch, model, weights, rows)
    return {"waited_s": waited, "saved_s": saved, "idle_s": idle, "steps": n, "all_s": time.perf_counter() - begin}


def evaluate(torch, model, weights, rows):
    from torch.utils.data import DataLoader

    waited, before = 0.0, time.perf_counter()
    with torch.no_grad():
        for data, _ in DataLoader(rows(ROWS * 40, 0.02), batch_size=ROWS, num_workers=2):
            waited += time.perf_counter() - before
            model(data.cuda()).argmax(1).cpu()
            before = time.perf_counter()
    return waited


def capture(torch, weights, rounds):
    out = torch.empty_like(weights)
    graph = torch.cuda.CUDAGraph()
    torch.mm(weights, weights, out=out)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for _ in range(rounds):
            torch.mm(weights, weights, out=out)
    return graph


def framework(torch, way, folder, model, loader, weights, rounds):
    start = time.perf_counter()
    if way == "lightning":
        import pytorch_lightning as pl

        class Module(pl.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = model

            def training_step(self, batch, _):
                for _ in range(rounds):
                    weights @ weights
                return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), 1e-3)

        pl.Trainer(max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                   enable_model_summary=False).fit(Module(), loader)
    else:
        import transformers

        class Module(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, data=None, labels=None):
                for _ in range(rounds):
                    weights @ weights
                out = self.model(data)
                return {"loss": torch.nn.functional.cross_entropy(out, labels), "logits": out}

        def collate(rows):
            return {"data": torch.stack([r[0] for r in rows]), "labels": torch.tensor([r[1] for r in rows])}

        arguments = transformers.TrainingArguments(folder, per_device_train_batch_size=ROWS, num_train_epochs=1, dataloader_num_workers=loader.num_workers,
                                                   report_to=[], save_strategy="no", logging_steps=30, disable_tqdm=True)
        transformers.Trainer(Module(), arguments, train_dataset=loader.dataset, data_collator=collate).train()
    torch.cuda.synchronize()
    return {"waited_s": None, "saved_s": 0.0, "idle_s": None, "steps": STEPS, "all_s": time.perf_counter() - start}


# ---- what the report makes of it ----

def near(a, b):
    return abs(a - b) <= max(0.1 * max(a, b), 0.06)


def check(millrace, way, folder):
    trace = os.path.join(folder, way + ".mrt")
    command = [sys.executable, os.path.abspath(__file__), "--train", way, folder]
    if way == "gloo":
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2"] + command[1:]
    done = subprocess.run([millrace, "trace", "--quiet", "-o", trace, "--", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    lines = [json.loads(line) for line in done.stdout.decode().splitlines() if line.startswith("{\"")]
    lines = [line for line in lines if "waited_s" in line]
    if done.returncode or not lines:
        return "did not run: " + done.stderr.decode()[-600:], None
    told = max(lines, key=lambda line: line["rank"])
    found = json.loads(subprocess.run([millrace, "report", "--json", trace], check=True, stdout=subprocess.PIPE).stdout)
    os.remove(trace)
    if not any(r["steps"] for r in found["by_rank"]):
        return "%s: no steps; %s %s" % (way, found["verdict"]["lines"], done.stderr.decode()[-600:]), False
    rank = [r for r in found["by_rank"] if r["steps"]][-1]
    stall, saved = rank["time"]["data_stall_s"], rank["time"]["checkpoint_s"]
    steps = [s for s in found["steps"] if s["rank"] == rank["rank"]]
    idle = sum(s["accelerator_idle_s"] or 0 for s in steps[1:])
    met = sum(s["accelerator_collective_s"] for s in steps)
    first = found["findings"][0]["id"] if found["findings"] else "-"
    verdict, causes, firsts = WAYS[way][3:]
    wrong = []
    if found["verdict"]["class"] != verdict:
        wrong.append("class should be " + verdict)
    if causes and found["verdict"]["cause"] not in causes:
        wrong.append("cause should be " + "/".join(causes))
    if firsts and first not in firsts:
        wrong.append("first finding should be " + "/".join(sorted(firsts)))
    if told["waited_s"] is not None and not near(stall, told["waited_s"]):
        wrong.append("stall")
    if not near(saved, told["saved_s"]):
        wrong.append("saved")
    if way == "nccl" and not near(met, 0.02 * STEPS):
        wrong.append("collective %.2f s" % met)
    if way == "gloo" and (not found["culprits"] or found["culprits"][0]["rank"] != 1):
        wrong.append("culprit")
    line = "%-10s %-17s %-11s %-4s waited %s s (report %.2f), GPU idle %s s (report %.2f), saved %.2f s (%.2f), collective %.2f s; all %.2f s" % (
        way, found["verdict"]["class"], found["verdict"]["cause"], first, shown(told["waited_s"]), stall, shown(told["idle_s"]), idle, told["saved_s"], saved, met,
        told["all_s"])
    return line + ("   WRONG: " + ", ".join(wrong) + "\n   " + " | ".join(found["verdict"]["lines"]) if wrong else ""), not wrong


def shown(seconds):
    return "?" if seconds is None else "%.2f" % seconds


def main():
    millrace, bad = os.environ.get("MILLRACE", "millrace"), 0
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "data"), "wb") as f:
            for _ in range(64):
                f.write(os.urandom(8 << 20))
            os.fsync(f.fileno())
        for way in sys.argv[1:] or WAYS:
            line, right = check(millrace, way, folder)
            print(line, flush=True)
            bad += not right
    return 1 if bad else 0


if __name__ == "__main__":
    if len(sys.argv) > 3 and sys.argv[1] == "--train":
        train(sys.argv[2], sys.argv[3])
    else:
        sys.exit(main())
