#!/usr/bin/env python3
"""Random runs over tiers: random world, policy, sizes of tiers and fault. Each run either delivers every sample as the order says, with the right bytes (the
checksums of all rows of every rank are those of a plain run, and --verify compares every byte), or ends in time with the cause named.

    tests/cli/tiers_campaign.py MILLRACE [--runs N] [--seed S] [--only NUMBER] [--nodes] [--wire]

The seed is printed; with it every run can be made again, and --only NUMBER makes one of them. --nodes: also jobs over network namespaces.
"""
import argparse, json, os, random, re, shutil, signal, subprocess, sys, tempfile, time

a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
a.add_argument("millrace")
a.add_argument("--runs", type=int, default=12)
a.add_argument("--seed", type=int, default=-1)
a.add_argument("--only", type=int, default=-1)
a.add_argument("--nodes", action="store_true")
a.add_argument("--wire", action="store_true", help="two nodes and a fault of the wire in every run")
a.add_argument("--verbose", action="store_true")
opt = a.parse_args()
opt.nodes |= opt.wire
seed = opt.seed if opt.seed >= 0 else random.SystemRandom().randrange(1 << 30)
millrace = os.path.abspath(opt.millrace)
here = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT = 90 if not opt.nodes else 120
SAMPLES, BYTES = 96, 9000
work = tempfile.mkdtemp(prefix="mr-campaign-")
os.chdir(work)
os.environ.update(MILLRACE_RUN_OVERWRITE="true", ASAN_OPTIONS="detect_leaks=0", UCX_WARN_UNUSED_ENV_VARS="n")
failures, outcomes = [], {}
root = os.geteuid() == 0

SETS = {  # format: what a file holds
    "raw": {"files": SAMPLES, "per": 1},
    "npz": {"files": SAMPLES, "per": 1},
    "tfrecord": {"files": 6, "per": SAMPLES // 6},
    "indexed_binary": {"files": 4, "per": SAMPLES // 4},
}


def workload(fmt):
    s = SETS[fmt]
    return f"""workflow: {{train: true}}
dataset: {{format: {fmt}, num_files_train: {s['files']}, num_samples_per_file: {s['per']}, record_length_bytes: {BYTES}, data_folder: {work}/{fmt}}}
reader: {{batch_size: 4, read_threads: 2, file_shuffle: seed, sample_shuffle: seed}}
train: {{epochs: 2, computation_time: 0}}
"""


def make_sets():
    for fmt in SETS:
        open(fmt + ".yaml", "w").write(workload(fmt))
        subprocess.run([millrace, "-q", "gen", fmt, "--workload", fmt + ".yaml"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


# What the wire's shim does to one message of a node, or from it on (src/wire/wire_fault.h).
WIRE_FAULTS = ["closed", "silent", "slow", "short", "long", "flip"]


# ---- one run ----


class Run:
    def __init__(self, number):
        dice = self.dice = random.Random(f"{seed}/{number}")
        self.number = number
        self.out = f"{work}/run-{number}"
        self.fmt = dice.choice(list(SETS))
        self.nodes = 2 if opt.wire else dice.choice([1, 2]) if opt.nodes else 1
        self.ranks = dice.randint(1, 2) if self.nodes > 1 else dice.randint(1, 4)
        self.policy = dice.choice(["naive", "staging", "lbann-dynamic", "nopfs", "nopfs", "millrace", "millrace", "millrace"][2 if opt.wire else 0 :])
        self.words = [f"reader.batch_size={dice.randint(1, 6)}", f"train.epochs={dice.randint(1, 4)}", f"reader.drop_last={dice.choice(['true', 'false'])}",
                      f"reader.order={dice.choice(['torch', 'cipher', 'sequential', 'shard'])}"]
        self.seed = dice.randint(0, 99)
        self.ssd = f"{work}/ssd-{number}"
        self.has_ssd = False
        self.tiers, self.keeps = "", self.policy not in ("naive", "staging")
        if self.keeps:
            self.choose_tiers()
        self.fault = dice.choice(["none", "none", "eio", "short", "eintr", "slow", "rot", "kill", "kill", "stop", "ssd full", "ssd read-only", "ssd corrupt", "ssd torn", "changed file"])
        if self.nodes > 1 and self.keeps and self.peers() == "on" and (opt.wire or dice.random() < 0.6):
            self.fault = "wire " + dice.choice(WIRE_FAULTS)
        self.words.append(f"train.computation_time={0.01 if self.fault in ('kill', 'stop') else dice.choice([0, 0, 0.002])}")
        self.store = self.choose_store()
        self.mounted = None

    def choose_tiers(self):
        dice, whole = self.dice, SAMPLES * (BYTES + 1000)
        parts = []
        if dice.random() < 0.8:
            parts.append(f"ram={int(whole * dice.choice([0.1, 0.34, 0.5, 1.3, 4]))}")
        self.has_ssd = dice.random() < 0.5
        if self.has_ssd:
            parts.append(f"ssd={self.ssd}:{int(SAMPLES * 12288 * dice.choice([0.25, 0.7, 1.5, 3]) + (4 << 20))}")
        if dice.random() < 0.6:
            parts.append(f"staging={int(whole * dice.choice([0.2, 0.6]))}")
        self.tiers = ",".join(parts) or "staging=400000"

    def choose_store(self):
        d = self.dice
        return {
            "eio": f"fault(op=read,nth={d.randint(1, 250)},error=EIO):posix",
            "short": f"fault(op=read,probability=0.1,short=0.5,seed={d.randint(1, 999)}):posix",
            "eintr": f"fault(op=read,probability=0.1,error=EINTR,seed={d.randint(1, 999)}):posix",
            "slow": f"fault(probability=0.03,slow=60ms,seed={d.randint(1, 999)}):posix",
            "rot": f"fault(op=read,nth={d.randint(1, 250)},corrupt=3,limit=1,seed={d.randint(1, 999)}):posix",
        }.get(self.fault, "posix")

    def command(self, out, policy, tiers, store, data):
        own = [millrace, "-q", "run", self.fmt + ".yaml", "--data", data, "--out", out, "--no-ceiling", "--no-probe", "--verify", "--seed", str(self.seed), "--store", store, "--policy", policy] + self.words
        if tiers:
            own += ["--tiers", tiers]
        if self.nodes > 1:
            return [f"{here}/bench/rig_nodes", str(self.nodes), str(self.ranks)] + own + (["--peers", self.peers()] if tiers else [])
        return own + ["--ranks", str(self.ranks)]

    def peers(self):
        return "on" if opt.wire or self.number % 3 else "off"

    # What the fault does to the world before the run, and what may come of it.
    def prepare(self):
        data = f"{work}/{self.fmt}"
        if self.fault.startswith("ssd"):
            if not (self.keeps and self.has_ssd):
                self.fault = "none"
            else:
                self.prepare_ssd()
        elif self.fault == "changed file":
            data = f"{work}/changed-{self.number}"
            shutil.copytree(f"{work}/{self.fmt}", data)
            names = sorted(n for n in os.listdir(data + "/train") if not n.endswith((".mrm", ".idx", ".off", ".sz")))
            self.spoilt = self.dice.choice(names)
            path = f"{data}/train/{self.spoilt}"
            os.truncate(path, os.path.getsize(path) - self.dice.randint(1, 3000))
        return data

    def prepare_ssd(self):
        os.makedirs(self.ssd, mode=0o700)
        if self.fault == "ssd full":
            if not root or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={self.dice.choice([64, 300, 700])}k,mode=0700", "tmpfs", self.ssd]).returncode:
                self.fault = "none"
            else:
                self.mounted = self.ssd
            return
        self.run_once(f"{self.out}-fill", self.policy, self.tiers, "posix", f"{work}/{self.fmt}")
        if self.fault == "ssd read-only":
            if not root or subprocess.run(["mount", "--bind", self.ssd, self.ssd]).returncode:
                self.fault = "none"
                return
            self.mounted = self.ssd
            subprocess.run(["mount", "-o", "remount,ro,bind", self.ssd], check=True)
            return
        end = ".seg" if self.fault == "ssd corrupt" else ".idx"
        for folder, _, names in os.walk(self.ssd):
            for name in names:
                path = os.path.join(folder, name)
                size = os.path.getsize(path)
                if not name.endswith(end) or not size:
                    continue
                if self.fault == "ssd torn" and self.dice.random() < 0.5:
                    os.truncate(path, self.dice.randrange(size))
                    continue
                with open(path, "r+b") as f:
                    for _ in range(1 + size // 20000):
                        at = self.dice.randrange(size)
                        f.seek(at)
                        old = f.read(1)
                        f.seek(at)
                        f.write(bytes([old[0] ^ (1 << self.dice.randrange(8))]))

    def run_once(self, out, policy, tiers, store, data, fault=None):
        begin = time.monotonic()
        env = dict(os.environ)
        if fault and fault.startswith("wire "):
            env["MILLRACE_WIRE_FAULT"] = f"{self.dice.randrange(self.nodes)}:{fault[5:]}:{self.dice.choice([0, 1, 2, 5, 20, self.dice.randint(3, 120)])}:{self.dice.choice([20, 400, 1500, 3000])}"
        p = subprocess.Popen(self.command(out, policy, tiers, store, data), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        victim = None
        if fault in ("kill", "stop"):
            time.sleep(self.dice.uniform(0.0, 0.25 if self.nodes == 1 else 0.6))
            victim = self.hurt(out, fault)
        try:
            text, _ = p.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(p.pid, signal.SIGKILL)
            text, _ = p.communicate()
            return None, text, time.monotonic() - begin, victim
        return p.returncode, text, time.monotonic() - begin, victim

    def members(self, out):
        """Processes of the run: those of the program that have its results folder on their command line."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = open(f"/proc/{pid}/cmdline", "rb").read().split(b"\0")
                if words[0].endswith(b"/millrace") and out.encode() in words and open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] != "Z":
                    found.append(int(pid))
            except (FileNotFoundError, ProcessLookupError, IndexError):
                pass
        return sorted(found)

    def hurt(self, out, fault):
        them = self.members(out)
        if not them:
            return None
        who = self.dice.choice(them)
        try:
            if fault == "kill":
                os.kill(who, signal.SIGKILL)
            else:
                os.kill(who, signal.SIGSTOP)
                time.sleep(self.dice.uniform(0.1, 1.0))
                os.kill(who, signal.SIGCONT)
        except ProcessLookupError:
            return None
        return who

    def go(self):
        data = self.prepare()
        code, text, seconds, victim = self.run_once(self.out, self.policy, self.tiers, self.store, data, self.fault)
        wrong = self.judge(code, text, victim, data)
        deadline = time.monotonic() + 10
        while (left := self.members(self.out)) and time.monotonic() < deadline:
            time.sleep(0.05)
        if left:
            wrong = f"{wrong or ''} processes {left} are left after the job's end".strip()
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        result = "no end" if code is None else "ended with the cause" if code not in (0, 3) else "right bytes"
        outcomes[(self.fault, result)] = outcomes.get((self.fault, result), 0) + 1
        if opt.verbose or wrong:
            print(f"run {self.number}: {self.describe()}: {result}, exit {code}, {seconds:.1f} s{': WRONG: ' + wrong if wrong else ''}", flush=True)
        if wrong:
            failures.append(self.number)
            print("   " + " ".join(f"'{w}'" if "(" in w else w for w in self.command(self.out, self.policy, self.tiers, self.store, data)))
            print("   " + "\n   ".join(text.strip().splitlines()[-12:]), flush=True)
        self.clean()

    def describe(self):
        return f"peers {self.peers()}, {self.fmt}, {self.nodes} x {self.ranks} ranks, {self.policy} {self.tiers}, {' '.join(self.words)}, fault {self.fault}"

    def judge(self, code, text, victim, data):
        """What is wrong with the outcome, or None."""
        if code is None:
            return f"no end after {LIMIT} s"
        if code in (0, 3):
            return self.compare(data)
        causes = {"eio": r"Input/output error|EIO", "rot": r"checksum|differ|corrupt|wrong|CRC|content|damaged", "changed file": re.escape(getattr(self, "spoilt", "?")),
                  "kill": r"rank \d+ failed|process died|signal 9|Killed|killed|rank \d+"}
        if self.policy == "lbann-dynamic" and "does not fit" in text:
            return None  # it needs room for all of the set in the job's memory
        cause = causes.get(self.fault)
        if self.fault == "kill" and (code == -9 or victim is None and code < 0):
            return None  # the one that was started itself
        if not cause:
            return f"exit {code}: this fault must not end the job"
        if self.fault == "kill" and victim is None:
            return f"exit {code}, and nobody was killed"
        return None if re.search(cause, text) else f"exit {code} without the cause ({cause})"

    def compare(self, data):
        if self.fault == "changed file":
            read = self.sums(self.out)
            # drop_last may leave the changed sample out in every epoch
            plain = self.plain(data)
            return None if read == plain else "a changed file was read without an error"
        have, want = self.sums(self.out), self.plain(f"{work}/{self.fmt}")
        return None if have == want else f"rows have checksums {have}, want {want}"

    def sums(self, out):
        m = json.load(open(out + "/summary.json"))["millrace"]
        return [(r["rank"], r["steps"], r["rows_crc32c_sum"]) for r in m["per_rank"]]

    def plain(self, data):
        """The same world without tiers and faults, by forked ranks."""
        out = self.out + "-plain"
        words = [millrace, "-q", "run", self.fmt + ".yaml", "--data", data, "--out", out, "--no-ceiling", "--no-probe", "--verify", "--seed", str(self.seed), "--policy", "staging",
                 "--ranks", str(self.ranks * self.nodes)] + self.words
        p = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT)
        if p.returncode not in (0, 3):
            return p.stderr
        return self.sums(out)

    def clean(self):
        if self.mounted:
            subprocess.run(["umount", self.mounted])
        for path in (self.out, self.out + "-plain", self.out + "-fill", self.ssd, f"{work}/changed-{self.number}"):
            shutil.rmtree(path, ignore_errors=True)


def main():
    if "--policy" not in subprocess.run([millrace, "run", "--help"], capture_output=True, text=True).stdout:
        print("SKIP: this build runs no policies")
        return 77
    print(f"seed {seed}: {opt.runs} runs", flush=True)
    make_sets()
    if opt.nodes:
        p = subprocess.run([f"{here}/bench/rig_nodes", "2", "1", "true"], capture_output=True, text=True)
        if p.returncode:
            print(f"one node only: {p.stdout.strip() or p.stderr.strip()}")
            opt.nodes = False
    for number in [opt.only] if opt.only >= 0 else range(opt.runs):
        Run(number).go()
    for (fault, result), n in sorted(outcomes.items()):
        print(f"{n:5}  {fault:16} {result}")
    print(f"seed {seed}: {len(failures)} of {opt.runs} runs went wrong: {failures}" if failures else f"seed {seed}: all {opt.runs} runs right")
    return 1 if failures else 0


signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # mounts and folders go in any case
try:
    code = main()
finally:
    os.chdir("/")
    subprocess.run(f"umount {work}/ssd-* 2>/dev/null", shell=True)
    shutil.rmtree(work, ignore_errors=True)
sys.exit(code)
