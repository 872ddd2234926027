"""`millrace order --mode torch` against a live torch.utils.data.DistributedSampler, over many parameters.

Needs any PyTorch; skipped where none is installed. The comparison with fixed vectors is tests/unit/test_order_torch.c.
"""
import os
import random
import subprocess
import sys

try:
    import torch
    from torch.utils.data.distributed import DistributedSampler
except Exception as reason:  # an unusable torch counts as none
    print(f"SKIP: no PyTorch to compare with ({reason})")
    sys.exit(77)

MILLRACE = os.environ.get("MILLRACE", "build/bin/millrace")


class Sized:
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n


def torch_ids(n, world, rank, epoch, seed, drop_last):
    sampler = DistributedSampler(Sized(n), num_replicas=world, rank=rank, shuffle=True, seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    return list(sampler)


def our_ids(n, world, rank, epoch, seed, drop_last):
    command = [MILLRACE, "order", "--mode", "torch", f"--samples={n}", f"--world={world}", f"--rank={rank}",
               f"--epoch={epoch}", f"--seed={seed}"]
    if drop_last:
        command.append("--drop-last")
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return [int(line) for line in out.split()]


def cases():
    for n in (1, 2, 3, 5, 16, 17):
        for world in (1, 2, 3, 7, 16):
            for drop_last in (False, True):
                yield n, world, world - 1, 0, 0, drop_last
    yield 3, 64, 63, 1, 9, False  # padding many times longer than the data set
    yield 1000, 4, 1, 3, 2**32 - 2, False
    yield 1000, 4, 1, 0, 2**63 - 1, True
    yield 1000, 4, 1, 7, -3, False
    yield 1281167, 8, 5, 2, 42, False
    yield 3000000, 512, 511, 1, 1, True
    draw = random.Random(20240229)
    for _ in range(200):
        world = draw.choice((1, 2, 3, 4, 7, 8, 16, 100))
        yield (draw.randint(1, 3000), world, draw.randrange(world), draw.randint(0, 1000), draw.randint(0, 2**62),
               draw.random() < 0.5)


def main():
    done = 0
    for case in cases():
        want, have = torch_ids(*case), our_ids(*case)
        if want != have:
            at = next((i for i, (a, b) in enumerate(zip(want, have)) if a != b), min(len(want), len(have)))
            sys.exit(f"FAILED: (n, world, rank, epoch, seed, drop_last) = {case}: first difference at {at}, "
                     f"lengths {len(want)} and {len(have)}")
        done += 1
    print(f"equal to torch {torch.__version__} in {done} cases")


if __name__ == "__main__":
    main()
