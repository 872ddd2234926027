"""Programs of two ranks on millrace.torch.DataLoader, started in every way: each sample is read by one of the ranks. mp.spawn and
mpirun in make test; torchrun, Lightning's launcher, accelerate and the Trainer of transformers in make test-full."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
ROLE = sys.argv[1] if len(sys.argv) > 1 else ""
if ROLE or "LAUNCHED" in os.environ:  # a rank: its parent has the data
    sys.path.insert(0, os.path.join(os.environ["MR_BINARY_DIR"], "python"))
else:
    from front_end import BINARY, folder, run, skip  # noqa: E402

try:
    import torch
    import torch.distributed as dist
except Exception as reason:
    if ROLE:
        raise
    skip(f"no PyTorch ({reason})")

from millrace.torch import DataLoader, Tokens  # noqa: E402

torch.set_num_threads(1)
N = 403


class Indices(torch.utils.data.Dataset):
    def __len__(self):
        return N

    def __getitem__(self, i):
        return i


def data(native=True):
    return Tokens(os.environ["TOKENS"], 2, "uint16", step=2, targets=False) if native else Indices()


def ids(batch):
    return batch[:, 0].tolist() if batch.dim() == 2 else batch.tolist()


def tell(**what):
    """A line of its own, whoever else prints."""
    path = os.path.join(os.environ["TOLD"], f"{os.getpid()}.jsonl")
    with open(path, "a") as f:
        f.write(json.dumps(what) + "\n")


def epoch(loader):
    return [i for batch in loader for i in ids(batch)]


# ---- the programs ----


def spawned_rank(number, world, loader, place):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        made = DataLoader(data(), 10, shuffle=True, num_workers=1)
        before = [len(made), len(loader)]
        dist.init_process_group("gloo", init_method=f"file://{place}", rank=number, world_size=world)
        after = [len(made), len(loader)]
        everything = DataLoader(data(), 10, sampler=torch.utils.data.SequentialSampler(range(N)))
        whole = len(epoch(everything))
        it = iter(made)
        head = [i for _ in range(7) for i in ids(next(it))]
        state = made.state_dict()
        tell(rank=number, before=before, after=after, whole=whole, head=head, tail=epoch(it), called=epoch(loader), state=state, repr=repr(made),
             second=epoch(made), warnings=[str(w.message) for w in said])  # fmt: skip
    dist.destroy_process_group()


def mpirun_rank():
    number = int(os.environ["OMPI_COMM_WORLD_RANK"])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        plain = DataLoader(data(), 10, num_workers=1)
        alone = epoch(plain)
        wanted = epoch(DataLoader(data(False), 10, distributed=True))
        dist.init_process_group("gloo", init_method=f"file://{os.environ['PLACE']}", rank=number, world_size=2)
        tell(rank=number, alone=alone, wanted=wanted, group=epoch(plain), warnings=[str(w.message) for w in said])
    dist.destroy_process_group()


def torchrun_rank():
    made = DataLoader(data(), 10, shuffle=True, num_workers=1)
    early = epoch(made)
    dist.init_process_group("gloo")
    sampler = torch.utils.data.distributed.DistributedSampler(range(N), shuffle=True)
    tell(rank=dist.get_rank(), early=early, group=epoch(made), sampler=epoch(DataLoader(data(), 10, sampler=sampler)))
    dist.destroy_process_group()


def lightning_program(inject):
    import lightning as L

    class Module(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.net, self.seen, self.checked = torch.nn.Linear(1, 1), [], []

        def training_step(self, batch, index):
            self.seen += ids(batch)
            return self.net(batch.float().view(len(batch), -1)[:, :1]).mean()

        def on_train_epoch_end(self):
            tell(rank=self.global_rank, seen=self.seen, checked=self.checked)
            self.seen, self.checked = [], []

        def validation_step(self, batch, index):
            self.checked += ids(batch)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-9)

    trainer = L.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, use_distributed_sampler=inject, logger=False, num_sanity_val_steps=0,
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)  # fmt: skip
    trainer.fit(Module(), DataLoader(data(), 10, shuffle=True, num_workers=1), DataLoader(data(False), 10))


def accelerate_program():
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = torch.nn.Linear(1, 1)
    made = DataLoader(data(), 10, shuffle=True, num_workers=1)
    called = DataLoader(data(False), 10)
    model, optimizer, loader, check = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-9), made, called)
    seen, steps, place = [], 0, os.environ["PLACE"]
    for k, batch in enumerate(loader):
        assert batch.device.type == accelerator.device.type
        with accelerator.accumulate(model):
            accelerator.backward(model(batch[:, :1].float()).mean())
            steps += accelerator.sync_gradients
            optimizer.step()
            optimizer.zero_grad()
        seen += ids(batch)
        if k == 7:
            accelerator.save_state(place)
            kept = len(seen)
    gathered = [i for batch in check for i in accelerator.gather_for_metrics(batch).tolist()]
    accelerator.load_state(place)
    again = epoch(loader)
    tell(rank=accelerator.process_index, seen=seen, steps=steps, batches=len(loader), same=loader is made, gathered=gathered, again=again == seen[kept:])


def trainer_program():
    import transformers.trainer
    from transformers import Trainer, TrainingArguments

    seen = []

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(1, 1)

        def forward(self, x=None, **more):
            seen.extend(x.tolist())
            return {"loss": self.net(x.float().unsqueeze(1)).mean()}

    class Rows(Indices):
        def __getitem__(self, i):
            return {"x": torch.tensor(i)}

    class Ours(Trainer):
        def get_train_dataloader(self):
            if os.environ["WAY"] == "patched":
                return super().get_train_dataloader()
            loader = DataLoader(Rows(), 10, shuffle=True)
            return self.accelerator.prepare(loader) if os.environ["WAY"] == "prepared" else loader

    transformers.trainer.DataLoader = DataLoader  # what WAY "patched" gets
    out, stops = os.environ["PLACE"], os.environ.get("STOPS")  # behind 4 batches of the second epoch
    args = TrainingArguments(out, num_train_epochs=2 if stops else 1, max_steps=25 if stops == "first" else -1, use_cpu=True, report_to=[], disable_tqdm=True,
                             per_device_train_batch_size=10, learning_rate=1e-9, save_steps=25, save_strategy="steps" if stops else "no")  # fmt: skip
    Ours(Model(), args, train_dataset=Rows()).train(resume_from_checkpoint=True if stops == "second" else None)
    tell(rank=int(os.environ["RANK"]), seen=seen)


PROGRAMS = {"mpirun": mpirun_rank, "torchrun": torchrun_rank, "lightning": lambda: lightning_program(True), "lightning-off": lambda: lightning_program(False),
            "accelerate": accelerate_program, "trainer": trainer_program}  # fmt: skip


# ---- starting them ----


def start(*command, **more):
    """The lines of two ranks, by rank."""
    told = tempfile.mkdtemp(dir=folder)
    env = dict(os.environ, LAUNCHED="1", MR_BINARY_DIR=BINARY, TOLD=told, PLACE=os.path.join(told, "place"), OMP_NUM_THREADS="1")
    env.update(more)
    done = subprocess.run([sys.executable, *command] if command[0].startswith("-") else command, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return lines(told)


def lines(told):
    by_rank = {}
    for name in sorted(os.listdir(told)):
        if name.endswith(".jsonl"):
            with open(os.path.join(told, name)) as f:
                for line in f:
                    one = json.loads(line)
                    by_rank.setdefault(one["rank"], []).append(one)
    assert sorted(by_rank) == [0, 1], sorted(by_rank)
    return by_rank[0], by_rank[1]


def torchrun(*program):
    return ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *program)


def once(*parts):
    """Two ranks have read everything, one sample twice to be equally long."""
    a, b = parts
    assert len(a) == len(b) == -(-N // 2) and sorted(set(a + b)) == list(range(N)), (len(a), len(b), len(set(a + b)))


def processes_of_spawn():
    """A loader made before the process group, and one that was pickled into the ranks, read their part when there is one."""
    told = tempfile.mkdtemp(dir=folder)
    os.environ.update(TOLD=told, LAUNCHED="1", MR_BINARY_DIR=BINARY)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sent = DataLoader(data(False), 10)
    torch.multiprocessing.spawn(spawned_rank, (2, sent, os.path.join(told, "place")), 2)
    (one,), (two,) = lines(told)
    full, half = -(-N // 10), -(-(-(-N // 2)) // 10)
    for x in (one, two):
        assert (x["before"], x["after"], x["whole"]) == ([full, full], [half, half], N), (x["before"], x["after"], x["whole"])
        assert f"rank {x['rank']} of 2" in x["repr"] and (x["state"]["rank"], x["state"]["world"]) == (x["rank"], 2)
        assert sum("(process group) reads its part" in w for w in x["warnings"]) == 1, x["warnings"]
        assert sum("'SequentialSampler'" in w and "every rank reads all" in w for w in x["warnings"]) == 1, x["warnings"]
    once(one["head"] + one["tail"], two["head"] + two["tail"])
    once(one["called"], two["called"])
    once(one["second"], two["second"])
    assert one["second"] != one["head"] + one["tail"]
    alone = DataLoader(data(), 16, shuffle=True, num_workers=1)  # one process goes on with what two have begun
    alone.load_state_dict(two["state"])
    rest = epoch(alone)
    assert sorted(rest + one["head"] + two["head"]) == list(range(N)), len(rest)


def processes_of_mpirun():
    if not shutil.which("mpirun"):
        print("note: no mpirun")
        return
    version = subprocess.run(["mpirun", "--version"], capture_output=True, text=True).stdout
    if "Open MPI" not in version:
        print("note: mpirun is not Open MPI's")
        return
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl_vader_single_copy_mechanism", "none", "-n", "2"]
    (one,), (two,) = start(*mpirun, sys.executable, os.path.abspath(__file__), "mpirun")
    for x in (one, two):
        assert x["alone"] == list(range(N))
        assert sum("OMPI_COMM_WORLD_SIZE" in w and "each reads all of it" in w for w in x["warnings"]) == 1, x["warnings"]
    once(one["wanted"], two["wanted"])
    once(one["group"], two["group"])


def processes_of_torchrun():
    (one,), (two,) = start(*torchrun(os.path.abspath(__file__), "torchrun"))
    for key in ("early", "group", "sampler"):
        once(one[key], two[key])
    assert one["sampler"] == one["early"] != one["group"]  # epochs 0, 0 and 1


def processes_of_lightning():
    for way in ("lightning", "lightning-off"):
        one, two = start("-W", "ignore", os.path.abspath(__file__), way)
        assert len(one) == len(two) == 2
        for a, b in zip(one, two):
            once(a["seen"], b["seen"])
            once(a["checked"], b["checked"])
        assert one[0]["seen"] != one[1]["seen"], way


def processes_of_accelerate():
    """`accelerate launch` starts ranks as torchrun does, with these variables; on CPUs it takes torchrun or mpirun."""
    (one,), (two,) = start(*torchrun(os.path.abspath(__file__), "accelerate"), ACCELERATE_USE_CPU="true", ACCELERATE_MIXED_PRECISION="no")
    once(one["seen"], two["seen"])
    for x in (one, two):
        assert x["same"] and x["again"] and x["batches"] == 21 and x["steps"] == 6, {k: v for k, v in x.items() if k not in ("seen", "gathered")}  # 5 of 4 batches, and the rest
        assert sorted(x["gathered"]) == list(range(N)), len(x["gathered"])


def processes_of_the_trainer():
    for way in ("patched", "as it is"):
        (one,), (two,) = start(*torchrun(os.path.abspath(__file__), "trainer"), WAY=way)
        once(one["seen"], two["seen"])


def processes_of_a_stopped_trainer():
    """It goes on in the middle of the second epoch."""
    for way in ("patched", "prepared", "as it is"):
        place, read = tempfile.mkdtemp(dir=folder), []
        for stops in ("first", "second"):
            parts = start(*torchrun(os.path.abspath(__file__), "trainer"), WAY=way, STOPS=stops, PLACE=place)
            read.append([part["seen"] for (part,) in parts])
        epoch = -(-(-(-N // 2)) // 10) * 10 - 8  # samples of a rank: 21 batches, the last one with 2
        once(*(first[epoch:] + second for first, second in zip(*read)))


if __name__ == "__main__":
    if ROLE:
        PROGRAMS[ROLE]()
        sys.exit(0)
    os.environ["TOKENS"] = os.path.join(folder, "tokens.bin")
    with open(os.environ["TOKENS"], "wb") as f:
        f.write(b"".join(i.to_bytes(2, "little") * 2 for i in range(N)))
    tests = [processes_of_spawn, processes_of_mpirun]
    if os.environ.get("MR_TEST_FULL"):
        tests.append(processes_of_torchrun)
        for package, test in (("lightning", processes_of_lightning), ("accelerate", processes_of_accelerate), ("transformers", processes_of_the_trainer), ("transformers", processes_of_a_stopped_trainer)):
            try:
                __import__(package)
                tests.append(test)
            except ImportError as reason:
                print(f"note: no {package} ({reason})")
    only = os.environ.get("ONLY")
    run([test for test in tests if not only or test.__name__.endswith(only)])
