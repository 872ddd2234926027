#!/usr/bin/env python3
"""What a checkpoint costs a training on a GPU: a transformer with about 4 GiB of parameters and AdamW state, steps of about 47 ms, one save in 120
steps. Seconds lost = 120 steps with the save minus the mean of the 120 steps right before and right after it; so a save that returns early and slows the
steps after it pays for that. In one table: torch.save + fsync, DCP's asynchronous saves, DCP through millrace.dcp, ours, ours overlapped; and two floors: the copy
from the device into pinned memory, and O_DIRECT writes of the same bytes. Then what an overlapped save must not see (BatchNorm, EMA, FSDP), and the budgets.

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


def dcp_way(torch, name, options, folder, model, optimizer, run):
    """DCP's asynchronous save: to files, with staging into pinned memory by its own stager, or through millrace.dcp."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
    dist.init_process_group("cpu:gloo,cuda:nccl" if options else "gloo")
    place = os.path.join(folder, name.replace(" ", "-"))
    try:
        writer, stager, future = None, None, {}
        if options.get("ours"):
            from millrace.dcp import StorageWriter

            writer = StorageWriter(place, keep_last=1, behind=True)
        if options.get("pinned"):
            from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

            stager = DefaultStager(StagingOptions(use_pinned_memory=True, use_shared_memory=True, use_async_staging=True, use_non_blocking_copy=True))

        def save(k):
            m, o = get_state_dict(model, optimizer)
            sd = {"model": m, "optimizer": o}
            if writer is not None:
                dcp.save(sd, checkpoint_id=os.path.join(place, "step-%d" % k), storage_writer=writer)
            elif stager is not None:
                future["f"] = dcp.async_save(sd, checkpoint_id="%s-%d" % (place, k), async_stager=stager)
            else:
                future["f"] = dcp.async_save(sd, checkpoint_id="%s-%d" % (place, k))

        def finish(k, info):
            if writer is not None:
                writer.wait()
                info["durable_s"] = round(writer._saver.last()["durable_s"], 3)
                return
            f = future["f"]
            getattr(f, "upload_completion", f).result()
            info["durable_s"] = "not synced; at most %.1f" % (time.perf_counter() - info["t0"])
            shutil.rmtree("%s-%d" % (place, k), ignore_errors=True)

        if writer is not None:
            save(1000)  # gets its memory
            writer.wait()
        run(name, save, finish)
        if writer is not None:
            writer.close()
    finally:
        dist.destroy_process_group()
        for v in ("RANK", "WORLD_SIZE"):
            os.environ.pop(v, None)


def check_overlapped(torch, checkpoint, folder):
    """What changes during the next step must not get into an overlapped save: BatchNorm's statistics, an average of the parameters (EMA), FSDP's shards."""
    import torch.distributed as dist

    def check(what, model, batch):
        average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9)) if what != "FSDP" else None
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        whole = lambda x: x.full_tensor() if hasattr(x, "full_tensor") else x

        def one():
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            if average is not None:
                average.update_parameters(model)

        one()
        place = os.path.join(folder, "check-" + what.split()[0])
        with checkpoint.Saver(place) as saver:
            for k in range(4):
                now = {"model": model.state_dict(), "average": average.state_dict() if average is not None else {}, "optimizer": optimizer.state_dict()}
                want = {n: {k2: whole(v).clone() for k2, v in now[n].items()} for n in ("model", "average")}
                saver.save(k, now, overlapped=True)
                one()
                saver.wait()
                got = checkpoint.load(place, map_location="cuda")
                for n in want:
                    for k2, v in want[n].items():
                        assert torch.equal(got[n][k2].reshape(v.shape), v.cuda()), (what, n, k2)
        shutil.rmtree(place)
        print("overlapped save with %s: as it was when save was called" % what, flush=True)

    net = lambda: torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.BatchNorm1d(4096), torch.nn.ReLU(), torch.nn.Linear(4096, 4096), torch.nn.BatchNorm1d(4096)).cuda()
    batch = torch.randn(64, 4096, device="cuda")
    check("BatchNorm and EMA", net(), batch)
    try:
        from torch.distributed.fsdp import fully_shard

        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29512", RANK="0", WORLD_SIZE="1")
        dist.init_process_group("nccl")
    except Exception as e:
        print("FSDP is not checked:", repr(e)[:200], flush=True)
        return
    try:
        model = net()
        fully_shard(model)
        check("FSDP", model, batch)
    finally:
        dist.destroy_process_group()
        for v in ("RANK", "WORLD_SIZE"):
            os.environ.pop(v, None)


def verdicts(result):
    def row(what, value, limit):
        print("%-58s %8.3f   budget %.3f   %s" % (what, value, limit, "ok" if value <= limit else "MISSED"), flush=True)

    median = lambda rows, f: statistics.median(f(r) for r in rows)
    for name in ("millrace", "millrace overlapped"):
        rows = result["ways"].get(name)
        if not rows:
            continue
        if name == "millrace":
            row("blocking / device to pinned memory", median(rows, lambda r: r["returned_s"]) / result["copy_floor_s"], 1.5)
        else:
            row("overlapped: returns after s", median(rows, lambda r: r["returned_s"]), 0.020)
        row(name + ": seconds lost per save", median(rows, lambda r: r["lost_s"]), 0.25)
        if result.get(name + " load_s"):
            row(name + ": verified load to the device / O_DIRECT reads", result[name + " load_s"] / result[name + " read_floor_s"], 1.25)
        row(name + ": durable / O_DIRECT write + fsync right before", median(rows, lambda r: r["durable_s"] / r["write_floor_s"]), 1.2)


def direct_read(path, threads=8):
    """O_DIRECT reads of a file into buffers that are used again: what a load cannot beat."""
    import threading

    piece, size = 8 << 20, os.path.getsize(path)
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    bufs = [mmap.mmap(-1, piece) for _ in range(threads)]
    for b in bufs:
        b.write(b"x" * piece)

    def work(k):
        for at in range(k * piece, size, threads * piece):
            os.preadv(fd, [bufs[k]], at)

    t = time.perf_counter()
    ts = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    [x.start() for x in ts], [x.join() for x in ts]
    os.close(fd)
    return time.perf_counter() - t


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--wheel")
    p.add_argument("--folder", default=None)
    p.add_argument("--out")
    p.add_argument("--saves", type=int, default=2)
    p.add_argument("--steps", type=int, default=120)
    p.add_argument("--step-ms", type=float, default=47)
    p.add_argument("--ways", default="torch.save,dcp.async_save,dcp pinned staging,dcp to millrace,millrace,millrace overlapped")
    a = p.parse_args()
    folder = tempfile.mkdtemp(dir=a.folder)
    if a.wheel:
        unpack(a.wheel, os.path.join(folder, "wheel"))
    import torch
    from millrace import _tree, checkpoint

    model, optimizer, step = make_training(torch)
    for rows in range(1, 64):  # as large a batch as takes the wanted time
        batch = torch.randn(rows, 512, 1280, device="cuda")
        timed_steps(torch, step, batch, 3)
        if statistics.median(timed_steps(torch, step, batch, 4)) * 1e3 >= a.step_ms:
            break
    state = lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    flat = _tree.Flat(state())
    nbytes = sum(x.numel() * x.element_size() for x in flat.keep if x.is_cuda)
    base = statistics.median(timed_steps(torch, step, batch, 60))
    pinned = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    def d2h():
        torch.cuda.synchronize()
        t = time.perf_counter()
        at = 0
        for x in flat.keep:  # noqa: F821 - deleted below, behind the last call
            if x.is_cuda:
                n = x.numel() * x.element_size()
                pinned[at:at + n].copy_(x.reshape(-1).view(torch.uint8), non_blocking=True)  # noqa: F821
                at += n
        torch.cuda.synchronize()
        return time.perf_counter() - t
    d2h()
    copy_floor = min(d2h() for _ in range(3))
    del pinned, flat
    write_floor = statistics.median(direct_write(os.path.join(folder, "floor"), nbytes // 4096 * 4096) for _ in range(3))
    result = {"bytes": nbytes, "step_s": base, "copy_floor_s": copy_floor, "write_floor_s": write_floor, "ways": {}}
    print("state %.2f GiB, step %.1f ms, device to pinned memory %.3f s, O_DIRECT write + fsync %.2f s" % (nbytes / 2**30, base * 1e3, copy_floor, write_floor), flush=True)

    def run(name, start, finish, floor=False):
        """Steps without, steps with a save, steps without, ...: what a save costs is compared with the steps right before and after it, because the
        device's clock moves."""
        rows = []
        bare = timed_steps(torch, step, batch, a.steps)
        for k in range(a.saves):
            info = {}
            if floor:
                info["write_floor_s"] = direct_write(os.path.join(folder, "floor"), nbytes // 4096 * 4096)

            def before(i, k=k):
                if i == 5:
                    torch.cuda.synchronize()
                    info["t0"] = time.perf_counter()
                    start(k)
                    info["returned_s"] = time.perf_counter() - info["t0"]

            steps = timed_steps(torch, step, batch, a.steps, before)
            finish(k, info)
            after = timed_steps(torch, step, batch, a.steps)
            info["lost_s"] = sum(steps) - (sum(bare) + sum(after)) / 2
            info["step_s"] = statistics.median(bare)
            bare = after
            info.pop("t0")
            rows.append(info)
            print("%-24s save %d: returned after %.3f s, lost %.3f s, durable %s s%s (step %.1f ms)" % (
                name, k, info["returned_s"], info["lost_s"], info.get("durable_s"), ", O_DIRECT write right before %.2f s" % info["write_floor_s"] if floor else "",
                info["step_s"] * 1e3), flush=True)
        result["ways"][name] = rows

    def wanted(name):
        return name in a.ways.split(",")

    if wanted("torch.save"):
        path = os.path.join(folder, "t.pt")

        def torch_save(k):
            with open(path, "wb") as f:
                torch.save(state(), f)
                f.flush()
                os.fsync(f.fileno())

        run("torch.save", torch_save, lambda k, info: info.update(durable_s=info["returned_s"]))
        os.unlink(path)
    for name, options in (("dcp.async_save", {}), ("dcp pinned staging", {"pinned": True}), ("dcp to millrace", {"ours": True})):
        if not wanted(name):
            continue
        try:
            dcp_way(torch, name, options, folder, model, optimizer, run)
        except BaseException as e:  # DCP's own errors are no Exceptions
            print(name, "failed:", repr(e)[:300], flush=True)
            result["ways"][name] = repr(e)[:300]
    for name, overlapped in (("millrace", False), ("millrace overlapped", True)):
        if not wanted(name):
            continue
        with checkpoint.Saver(os.path.join(folder, name.replace(" ", "-")), keep_last=1) as saver:
            t = time.perf_counter()
            saver.save(0, state(), overlapped=overlapped)
            saver.fence()
            first = time.perf_counter() - t
            saver.wait()
            print("%-24s first save (gets its memory): %.3f s" % (name, first), flush=True)
            result[name + " first_s"] = first

            def ours(k, saver=saver, overlapped=overlapped):
                saver.save(k + 1, state(), overlapped=overlapped)

            def ended(k, info, saver=saver):
                saver.wait()
                info["durable_s"] = round(saver.last()["durable_s"], 3)

            run(name, ours, ended, floor=True)
            want = {k: v.clone() for k, v in model.state_dict().items()}
            saver.save(99, state())
            saver.wait()
            torch.cuda.synchronize()
            t = time.perf_counter()
            got = checkpoint.load(saver.folder, map_location="cuda")
            torch.cuda.synchronize()
            result[name + " load_s"] = time.perf_counter() - t
            result[name + " read_floor_s"] = direct_read(os.path.join(saver.folder, "step-%012d" % 99, "rank-00000.safetensors"))
            print("%-24s verified load straight to the device: %.2f s; O_DIRECT reads of the file right after: %.2f s" % (
                name, result[name + " load_s"], result[name + " read_floor_s"]), flush=True)
            assert all(torch.equal(got["model"][k], want[k]) for k in want), "the load differs"
            del got, want
    check_overlapped(torch, checkpoint, folder)
    verdicts(result)
    shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps(result))
    if a.out:
        with open(a.out, "w") as f:
            json.dump(result, f, indent=1)


main()
