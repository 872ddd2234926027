"""PyTorch loops that have no data loader, with their own clock: hand_torch.py WAY STEPS WORK_S COMPUTE_S FOLDER

direct: reads past the page cache in the loop. numpy: numpy.load of files that are not in memory. decode: pictures, decoded in the loop. imap, map, threads,
processes, completed, queue, loop: batches from multiprocessing.Pool, concurrent.futures, a queue between processes, asyncio. thread: a thread of the program's
own and queue.Queue. simple, hidden, join: the same with a SimpleQueue, a Condition, a thread for each batch. sleep: the same, asked every millisecond, which nobody
sees. memory: everything is there. accumulate, two: direct, with four passes for a step of the optimiser, with two optimisers. bare: decoding that no span tells of, on a machine with
a device that nothing uses.

Computing is a pass that sleeps in its backward part, as one does whose work is done by a device; `memory` computes for real. The last line is JSON: seconds
waited, batches."""
import asyncio
import concurrent.futures
import hashlib
import json
import mmap
import multiprocessing
import os
import queue
import sys
import threading
import time

import torch

WAY, STEPS, WORK, COMPUTE, FOLDER = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
BLOCK = bytes(256 * 1024)
SIZE = 4 << 20


def busy(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        hashlib.sha256(BLOCK).digest()  # without Python's lock


class Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if WAY == "memory":
            busy(COMPUTE / 2)
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        busy(COMPUTE / 2) if WAY == "memory" else time.sleep(COMPUTE)
        return grad


def work(i):
    busy(WORK)
    return i


def path_of(i):
    return os.path.join(FOLDER, "hand%d.%s" % (i % 4, {"numpy": "npy", "decode": "jpg", "bare": "jpg"}.get(WAY, "bin")))


def prepare():
    """Four files of what the loop reads."""
    for i in range(4):
        if WAY == "numpy":
            import numpy

            numpy.save(path_of(i), numpy.frombuffer(os.urandom(SIZE), dtype="uint8"))
        elif WAY in ("decode", "bare"):
            from PIL import Image

            Image.frombytes("RGB", (640, 480), os.urandom(640 * 480 * 3)).save(path_of(i), quality=90)
        else:
            with open(path_of(i), "wb") as f:
                f.write(os.urandom(SIZE))
        with open(path_of(i), "rb") as f:
            os.fsync(f.fileno())
    drop(range(4))


def drop(which):
    for i in which:
        fd = os.open(path_of(i), os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def read_direct(buffer=mmap.mmap(-1, SIZE)):
    for i in range(4):
        fd = os.open(path_of(i), os.O_RDONLY | os.O_DIRECT)
        os.preadv(fd, [buffer], 0)
        os.close(fd)


def own_reads(i):
    if WAY == "numpy":
        import numpy

        return [torch.from_numpy(numpy.load(path_of(k))[:16].astype("float32")) for k in range(4)][0]
    if WAY == "decode":
        import numpy
        from PIL import Image

        return [torch.from_numpy(numpy.asarray(Image.open(path_of(k)))[0, :16, 0].astype("float32")) for k in range(4)][0]
    if WAY == "bare":
        torch.cuda.is_initialized = lambda: True  # a look at a device does that; the model is not on it
        with open(path_of(i), "rb") as f:
            f.read()
        busy(WORK)
    elif WAY in ("direct", "accumulate", "two"):
        read_direct()


def put_all(q):
    for i in range(STEPS):
        q.put(work(i))


class Hidden:
    def __init__(self):
        self.ready, self.items = threading.Condition(), []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        for i in range(STEPS):
            work(i)
            with self.ready:
                self.items.append(i)
                self.ready.notify()

    def take(self):
        with self.ready:
            while not self.items:
                self.ready.wait()
            return self.items.pop(0)


class Joined:
    """A thread for each batch, begun one batch ahead."""

    def __init__(self):
        self.begin(0)

    def begin(self, i):
        self.thread = threading.Thread(target=work, args=(i,))
        self.thread.start()

    def take(self, i):
        self.thread.join()
        self.begin(i + 1)
        return i


def poll(q):
    while q.empty():
        time.sleep(0.001)
    return q.get()


def sources():
    """A function that waits for the next batch."""
    if WAY == "imap":
        results = multiprocessing.Pool(2).imap(work, range(STEPS))
        return lambda i: next(results)
    if WAY == "map":
        pool = multiprocessing.Pool(2)
        return lambda i: pool.map(work, range(4))
    if WAY in ("threads", "processes"):
        pool = (concurrent.futures.ThreadPoolExecutor if WAY == "threads" else concurrent.futures.ProcessPoolExecutor)(2)
        results = pool.map(work, range(STEPS))
        return lambda i: next(results)
    if WAY == "completed":
        pool = concurrent.futures.ThreadPoolExecutor(2)
        return lambda i: [f.result() for f in concurrent.futures.as_completed([pool.submit(work, k) for k in range(4)])]
    if WAY == "queue":
        q = multiprocessing.Queue()
        multiprocessing.Process(target=put_all, args=(q,), daemon=True).start()
        return lambda i: q.get()
    if WAY == "thread":
        q = queue.Queue()
        threading.Thread(target=put_all, args=(q,), daemon=True).start()
        return lambda i: q.get()
    if WAY in ("simple", "sleep"):
        q = queue.SimpleQueue()
        threading.Thread(target=put_all, args=(q,), daemon=True).start()
        return lambda i: q.get() if WAY == "simple" else poll(q)
    if WAY == "join":
        return Joined().take
    if WAY == "loop":
        loop = asyncio.new_event_loop()
        pool = concurrent.futures.ThreadPoolExecutor(2)

        async def gather():
            return await asyncio.gather(*(loop.run_in_executor(pool, work, k) for k in range(4)))

        return lambda i: loop.run_until_complete(gather())
    if WAY == "hidden":
        hidden = Hidden()
        return lambda i: hidden.take()
    return own_reads


def main():
    torch.set_num_threads(1)
    prepare()
    model = torch.nn.Linear(16, 4)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for _ in range(2 if WAY == "two" else 1)]
    take, data, waited = sources(), torch.randn(64, 16), 0.0
    begin = time.perf_counter()
    for i in range(STEPS):
        since = time.perf_counter()
        if WAY == "numpy":
            drop(range(4))
            since = time.perf_counter()
        batch = take(i)
        waited += time.perf_counter() - since
        x = batch if isinstance(batch, torch.Tensor) else data[i % 64]
        for optimizer in optimizers:
            Pass.apply(model(x)).sum().backward()
            if WAY != "accumulate" or i % 4 == 3:
                optimizer.step()
                optimizer.zero_grad()
        if i % 10 == 0:
            print("step", i, file=sys.stderr, flush=True)
    print(json.dumps({"waited_s": waited, "steps": STEPS, "all_s": time.perf_counter() - begin}))


if __name__ == "__main__":
    main()
