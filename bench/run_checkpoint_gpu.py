#!/usr/bin/env python3
"""What a checkpoint costs a training on a GPU: a transformer with about 4 GiB of parameters and AdamW state, steps of about 47 ms, one save in 120
steps. Seconds lost = 120 steps with the save minus the 120 steps without right before; so a save that returns early and slows the steps
after it pays for that. In one table: torch.save + fsync, DCP's asynchronous save, ours, ours overlapped; and two floors: the copy from the device into
pinned memory, and O_DIRECT writes of the same bytes.

    python3 bench/run_checkpoint_gpu.py --wheel millrace-*.whl [--folder F] [--out results.json] [--saves 2]"""
import argparse
import json
import mmap
import os
import shutil
import statistics
import sys
import tempfile
import time
import zipfile


def unpack(wheel, folder):
    with zipfile.ZipFile(wheel) as z:
        z.extractall(folder)
        for info in z.infolist():
            if info.external_attr >> 16 & 0o111:
                os.chmod(os.path.join(folder, info.filename), 0o755)
    sys.path.insert(0, folder)


def make_training(torch):
    torch.manual_seed(1)
    layer = torch.nn.TransformerEncoderLayer(1280, 20, 5120, dropout=0.0, batch_first=True, device="cuda")
    model = torch.nn.TransformerEncoder(layer, 18, enable_nested_tensor=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step(batch):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(batch).float().square().mean()
        loss.backward()
        optimizer.step()

    return model, optimizer, step


def timed_steps(torch, step, batch, n, before=None):
    """Wall times of n steps, each waited for; before(i) may save."""
    out = []
    torch.cuda.synchronize()
    for i in range(n):
        t = time.perf_counter()
        if before:
            before(i)
        step(batch)
        torch.cuda.synchronize()
        out.append(time.perf_counter() - t)
    return out


def direct_write(path, nbytes, threads=2):
    import threading

    piece = 8 << 20
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT | os.O_TRUNC, 0o600)
    os.posix_fallocate(fd, 0, nbytes)
    bufs = [mmap.mmap(-1, piece) for _ in range(threads)]
    for b in bufs:
        b.write(os.urandom(4096) * (piece // 4096))
    t = time.perf_counter()

    def work(k):
        for at in range(k * piece, nbytes, threads * piece):
            os.pwrite(fd, memoryview(bufs[k])[:min(piece, nbytes - at) // 4096 * 4096], at)

    ts = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    [x.start() for x in ts], [x.join() for x in ts]
    os.fsync(fd)
    os.close(fd)
    took = time.perf_counter() - t
    os.unlink(path)
    return took


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--wheel")
    p.add_argument("--folder", default=None)
    p.add_argument("--out")
    p.add_argument("--saves", type=int, default=2)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--step-ms", type=float, default=47)
    p.add_argument("--ways", default="torch.save,dcp.async_save,millrace,millrace overlapped")
    a = p.parse_args()
    folder = tempfile.mkdtemp(dir=a.folder)
    if a.wheel:
        unpack(a.wheel, os.path.join(folder, "wheel"))
    import torch
    from millrace import checkpoint

    model, optimizer, step = make_training(torch)
    for rows in range(1, 64):  # as large a batch as takes the wanted time
        batch = torch.randn(rows, 512, 1280, device="cuda")
        timed_steps(torch, step, batch, 3)
        if statistics.median(timed_steps(torch, step, batch, 4)) * 1e3 >= a.step_ms:
            break
    state = lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    flat = checkpoint._Flat(state())
    nbytes = sum(x.numel() * x.element_size() for x in flat.keep if x.is_cuda)
    base = statistics.median(timed_steps(torch, step, batch, 60))
    pinned = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    def d2h():
        torch.cuda.synchronize()
        t = time.perf_counter()
        at = 0
        for x in flat.keep:
            if x.is_cuda:
                n = x.numel() * x.element_size()
                pinned[at:at + n].copy_(x.reshape(-1).view(torch.uint8), non_blocking=True)
                at += n
        torch.cuda.synchronize()
        return time.perf_counter() - t
    d2h()
    copy_floor = min(d2h() for _ in range(3))
    del pinned, flat
    write_floor = statistics.median(direct_write(os.path.join(folder, "floor"), nbytes // 4096 * 4096) for _ in range(3))
    result = {"bytes": nbytes, "step_s": base, "copy_floor_s": copy_floor, "write_floor_s": write_floor, "ways": {}}
    print("state %.2f GiB, step %.1f ms, device to pinned memory %.3f s, O_DIRECT write + fsync %.2f s" % (nbytes / 2**30, base * 1e3, copy_floor, write_floor), flush=True)

    def run(name, start, finish):
        rows = []
        for k in range(a.saves):
            info = {}

            def before(i, k=k):
                if i == 5:
                    torch.cuda.synchronize()
                    info["t0"] = time.perf_counter()
                    start(k)
                    info["returned_s"] = time.perf_counter() - info["t0"]

            bare = timed_steps(torch, step, batch, a.steps)  # right before: the device's clock moves
            steps = timed_steps(torch, step, batch, a.steps, before)
            info["lost_s"] = sum(steps) - sum(bare)
            info["step_s"] = statistics.median(bare)
            finish(k, info)
            info.pop("t0")
            rows.append(info)
            print("%-20s save %d: returned after %.3f s, lost %.3f s, durable %s s (step %.1f ms)" % (
                name, k, info["returned_s"], info["lost_s"], info.get("durable_s"), info["step_s"] * 1e3), flush=True)
        result["ways"][name] = rows

    if "torch.save" in a.ways.split(","):
        path = os.path.join(folder, "t.pt")

        def torch_save(k):
            with open(path, "wb") as f:
                torch.save(state(), f)
                f.flush()
                os.fsync(f.fileno())

        run("torch.save", torch_save, lambda k, info: info.update(durable_s=info["returned_s"]))
        os.unlink(path)
    if "dcp.async_save" in a.ways:
        try:
            import torch.distributed as dist
            import torch.distributed.checkpoint as dcp
            from torch.distributed.checkpoint.state_dict import get_state_dict

            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
            dist.init_process_group("gloo")
            future = {}

            def dcp_save(k):
                m, o = get_state_dict(model, optimizer)
                future["f"] = dcp.async_save({"model": m, "optimizer": o}, checkpoint_id=os.path.join(folder, "dcp%d" % k))

            def dcp_finish(k, info):
                future["f"].result()
                info["durable_s"] = "not synced; at most %.1f" % (time.perf_counter() - info["t0"])
                shutil.rmtree(os.path.join(folder, "dcp%d" % k), ignore_errors=True)

            run("dcp.async_save", dcp_save, dcp_finish)
            dist.destroy_process_group()
            for v in ("RANK", "WORLD_SIZE"):
                os.environ.pop(v)
        except Exception as e:
            print("dcp.async_save failed:", repr(e)[:300], flush=True)
            for v in ("RANK", "WORLD_SIZE"):
                os.environ.pop(v, None)
    for name, overlapped in (("millrace", False), ("millrace overlapped", True)):
        if name not in a.ways.split(","):
            continue
        with checkpoint.Saver(os.path.join(folder, name.replace(" ", "-")), keep_last=1) as saver:
            t = time.perf_counter()
            saver.save(0, state())
            first = time.perf_counter() - t
            saver.wait()
            print("%-20s first save (gets its memory): %.3f s" % (name, first), flush=True)
            result[name + " first_s"] = first

            def ours(k, saver=saver, overlapped=overlapped):
                saver.save(k + 1, state(), overlapped=overlapped)

            def ended(k, info, saver=saver):
                saver.wait()
                info["durable_s"] = round(saver.last()["durable_s"], 3)

            run(name, ours, ended)
            want = {k: v.clone() for k, v in model.state_dict().items()}
            saver.save(99, state())
            saver.wait()
            t = time.perf_counter()
            got = checkpoint.load(saver.folder, map_location="cuda")
            result[name + " load_s"] = time.perf_counter() - t
            assert all(torch.equal(got["model"][k], want[k]) for k in want), "the load differs"
            del got, want
    shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result))
    if a.out:
        with open(a.out, "w") as f:
            json.dump(result, f, indent=1)


main()
