"""A PyTorch loop that is starved in one way, and says so by its own clock: starved_torch.py WAY WORKERS PREFETCH STEPS COMPUTE_S FOLDER

storage: reads past the page cache. decode: Python on the CPU. late: one batch in nine takes long, and too few are asked for ahead. none: nothing. save: a
checkpoint in every tenth step. The last line is JSON: what the loop waited for its batches, saved, and took in all."""
import json
import mmap
import os
import sys
import time

import torch
from torch.utils.data import DataLoader, Dataset

WAY, WORKERS, PREFETCH, STEPS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
COMPUTE, FOLDER = float(sys.argv[5]), sys.argv[6]
ROWS, CHUNK = 2, 4 << 20
BUFFER = mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # once: new pages for each row cost as much as a fast disk


def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


class Rows(Dataset):
    def __len__(self):
        return ROWS * STEPS

    def __getitem__(self, i):
        if WAY == "storage":
            fd = os.open(os.path.join(FOLDER, "data"), os.O_RDONLY | os.O_DIRECT)
            end = time.perf_counter() + 0.008
            while time.perf_counter() < end:  # as long on a fast disk as on a slow one
                os.preadv(fd, [BUFFER], CHUNK * (i % 16))
            os.close(fd)
        elif WAY == "decode":
            burn(0.03)
        elif WAY == "late" and i // ROWS % 9 == 8:
            time.sleep(0.25)
        return torch.full((4,), float(i))


def main():
    torch.set_num_threads(1)
    more = {"prefetch_factor": PREFETCH} if WORKERS else {}
    loader = DataLoader(Rows(), batch_size=ROWS, num_workers=WORKERS, **more)
    state = {"x": torch.ones(12 << 20) if WAY == "save" else None}
    waited = saved = 0.0
    begin = before = time.perf_counter()
    for step, batch in enumerate(loader):
        waited += time.perf_counter() - before
        assert batch.shape == (ROWS, 4)
        time.sleep(COMPUTE)
        if WAY == "save" and step % 10 == 9:
            start = time.perf_counter()
            with open(os.path.join(FOLDER, "saved.pt"), "wb") as f:
                torch.save(state, f)
                f.flush()
                os.fsync(f.fileno())
            saved += time.perf_counter() - start
        before = time.perf_counter()
    print(json.dumps({"waited_s": waited, "saved_s": saved, "all_s": before - begin}))


if __name__ == "__main__":
    main()
