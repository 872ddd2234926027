#!/usr/bin/env python3
"""Random faults against object storage: every command ends with the right bytes or a named error, and nothing stays behind.

    campaign.py [--number N] [--seed S] [--first I]

Each case takes a command (gen, verify, run, cat, scan), a rule of s3_server.py or a server that is killed and restarted, and
timings, all from the seed. A command that succeeds is checked byte by byte; one that fails must say so in one of the messages
of the store, within a minute, with a status of its own (no signal). Then the faults end: the same command must succeed, and no
multipart upload may be left."""
import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
STORE = "s3(deadline=3s,stall_timeout=1s,connect_timeout=1s,range=64KiB,connections=8,part=5MiB)"
KINDS = ["500", "503", "slowdown", "429", "timeout408", "reset", "cut", "short", "slow", "hang", "wrong_etag", "redirect", "expired",
         "lost", "error200", "garbage", "denied", "restart"]
NAMED = re.compile(r"millrace: .*s3://|millrace: \d+ of \d+ files|millrace: .*(broken|damaged|unexpected end|manifest|not finished)")


class Server:
    """The stub, which keeps what it has across a restart."""

    def __init__(self, folder: str) -> None:
        self.folder, self.port, self.process = folder, 0, None
        self.start()

    def start(self) -> None:
        """Starts it, on the port that it had."""
        port_file = os.path.join(self.folder, "port")
        if os.path.exists(port_file):
            os.unlink(port_file)
        self.process = subprocess.Popen([sys.executable, os.path.join(HERE, "s3_server.py"), "--port-file", port_file,
                                         "--port", str(self.port), "--store", os.path.join(self.folder, "kept")])
        for _ in range(600):
            if os.path.exists(port_file):
                break
            time.sleep(0.05)
        with open(port_file, encoding="ascii") as f:
            self.port = int(f.read())

    def kill(self) -> None:
        """As a machine that goes away."""
        self.process.kill()
        self.process.wait()

    def admin(self, method: str, path: str, body: str = "") -> str:
        """An unsigned request."""
        r = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method=method, data=body.encode() or None)
        with urllib.request.urlopen(r, timeout=30) as answer:
            return answer.read().decode()


class Campaign:
    """One server, one seed, many cases."""

    def __init__(self, folder: str, seed: int) -> None:
        self.folder, self.seed, self.server = folder, seed, Server(folder)
        self.env = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server.port}", "HOME": folder}
        self.outcomes: dict[str, int] = {}
        subprocess.run(["bash", "-c", f". {HERE}/server.sh; make_bucket bucket"], env=self.env, check=True)
        self.millrace("gen", "s3://bucket/set", "--format", "npy", "--files", "6", "--size", "150KB", "-q")
        self.millrace("gen", "s3://bucket/plain", "--format", "raw", "--files", "4", "--size", "100KB", "-q")
        self.millrace("gen", os.path.join(folder, "here"), "--format", "npy", "--files", "6", "--size", "150KB", "-q")
        self.samples = [self.cat(os.path.join(folder, "here", "train"), i) for i in range(6)]

    def call(self, *args: str) -> subprocess.CompletedProcess:
        """One command, which must end within a minute."""
        return subprocess.run(["millrace", *args], env=self.env, capture_output=True, timeout=120)

    def millrace(self, *args: str) -> bytes:
        """One command that must succeed."""
        r = self.call(*args)
        if r.returncode:
            raise SystemExit(f"FAILED: {args}: {r.returncode} {r.stderr.decode()}")
        return r.stdout

    def cat(self, folder: str, sample: int) -> bytes:
        """The bytes of one sample."""
        return self.millrace("cat", folder, str(sample))

    def command(self, rng: random.Random, number: int) -> tuple[str, list[str]]:
        """What is run, and its words."""
        what = rng.choice(["gen", "gen", "verify", "run", "cat", "scan", "overwrite"])
        if what == "gen":
            size, files = rng.choice([("50KB", "5"), ("11MB", "2")])
            return what, ["gen", f"s3://bucket/new{number}", "--format", rng.choice(["npy", "raw", "npz", "tfrecord"]),
                          "--files", files, "--size", size, "-q"]
        if what == "overwrite":
            return what, ["gen", "s3://bucket/over", "--format", "npy", "--files", "3", "--size", "30KB", "-q", "--overwrite"]
        if what == "verify":
            return what, ["verify", "s3://bucket/set"]
        if what == "cat":
            return what, ["cat", "s3://bucket/set/train", str(rng.randrange(6))]
        if what == "scan":
            return what, ["scan", "s3://bucket/plain/train", "--format", "raw", "--out", os.path.join(self.folder, "scan.mrm")]
        tiers = rng.choice(["", "auto", "ram=1MiB"])
        return what, ["run", "--data", "s3://bucket/set", "--verify", "--overwrite",
                      "--out", os.path.join(self.folder, f"out{number}"),
                      "dataset.format=npy", "dataset.record_length_bytes=150000", "train.epochs=2", "reader.batch_size=2",
                      "train.computation_time=0", "workflow.checkpoint=false", *(["--tiers", tiers] if tiers else []),
                      *rng.choice([[], ["--io", "queue"]])]

    def rule(self, rng: random.Random, kind: str) -> dict[str, object]:
        """How often, and for how long."""
        rule: dict[str, object] = {"kind": kind, "seed": rng.randrange(1 << 30)}
        rule.update(rng.choice([{"nth": rng.randrange(1, 12)}, {"every": rng.randrange(2, 6)}, {"probability": rng.uniform(0.05, 0.6)},
                                {"probability": 1.0, "limit": rng.randrange(1, 12)}, {"probability": 1.0}]))
        if kind in ("slow", "hang"):
            rule["seconds"] = 0.3 if kind == "slow" else 2.5
            rule["limit"] = rng.randrange(1, 4)
        if rng.random() < 0.3:
            rule["method"] = rng.choice(["GET", "PUT", "POST", "HEAD"])
        return rule

    def is_right(self, what: str, words: list[str], out: bytes) -> bool:
        """The bytes of a command that succeeded."""
        if what == "cat":
            return out == self.samples[int(words[2])]
        if what in ("gen", "overwrite"):
            return self.call("verify", words[1]).returncode == 0
        return True # verify and run --verify compare every byte

    def one(self, number: int) -> str:
        """One case; returns what is wrong, or nothing."""
        rng = random.Random(self.seed * 1000003 + number)
        kind = KINDS[number % len(KINDS)]
        what, words = self.command(rng, number)
        text = f"case {number} ({kind}, {' '.join(words)})"
        if kind == "restart":
            timer = threading.Timer(rng.uniform(0.02, 0.5), self.restart, [rng.uniform(0.05, 1.0)])
            timer.start()
        else:
            rule = self.rule(rng, kind)
            text += f" {json.dumps(rule)}"
            self.server.admin("PUT", "/_faults", json.dumps([rule]))
        try:
            r = self.call(*words, "--store", STORE)
        except subprocess.TimeoutExpired:
            return f"{text}: does not end"
        if kind == "restart":
            timer.join()
        self.server.admin("PUT", "/_reset")
        said = r.stderr.decode(errors="replace")
        self.outcomes["right" if r.returncode == 0 else "named end"] = self.outcomes.get("right" if r.returncode == 0 else "named end", 0) + 1
        if r.returncode == 0:
            if not self.is_right(what, words, r.stdout):
                return f"{text}: wrong bytes"
        elif r.returncode not in (1, 2, 3, 4, 5) or not NAMED.search(said):
            return f"{text}: status {r.returncode}, said: {said}"
        if r.returncode == 0 and self.server.admin("GET", "/_uploads") != "[]":
            return f"{text}: a command that succeeded leaves uploads"
        again = self.call(*words)
        if again.returncode or not self.is_right(what, words, again.stdout):
            return f"{text}: status {again.returncode} after the faults ended: {again.stderr.decode()}"
        left = self.server.admin("GET", "/_uploads")
        return f"{text}: uploads are left: {left}" if left != "[]" else ""

    def restart(self, pause: float) -> None:
        """Killed in the middle, back after a pause."""
        self.server.kill()
        time.sleep(pause)
        self.server.start()


def main() -> int:
    """Runs the cases and prints those that are wrong."""
    p = argparse.ArgumentParser()
    p.add_argument("--number", type=int, default=300)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--first", type=int, default=0)
    args = p.parse_args()
    os.environ.update({"AWS_ACCESS_KEY_ID": "test-key-0001", "AWS_SECRET_ACCESS_KEY": "test/secret+0001"})
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        c = Campaign(folder, args.seed)
        try:
            for number in range(args.first, args.first + args.number):
                wrong = c.one(number)
                if wrong:
                    bad += 1
                    print("FAILED:", wrong, flush=True)
        finally:
            c.server.kill()
        print(f"{args.number} faults, {bad} wrong; " + ", ".join(f"{v} {k}" for k, v in sorted(c.outcomes.items())))
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
