"""Runs cases of bench/check_fixes beside each other, each in a process and session of its own, and within a time limit."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

STOP_S = 10.0  # between SIGTERM and SIGKILL


@dataclasses.dataclass
class Running:
    name: str
    cpus: int
    process: subprocess.Popen[str]
    rows: str
    began: float


class Jobs:
    """`command(name, rows)`: the command line that runs one case and appends its row to the file `rows`."""

    def __init__(self, jobs: int, limit_s: float, command: Callable[[str, str], list[str]]) -> None:
        self.jobs, self.limit_s, self.command = jobs, limit_s, command
        self.began, self.longest = time.monotonic(), 0.0
        self.running: list[Running] = []
        self.rows: list[dict[str, Any]] = []
        self.left: list[str] = []
        self.failed = 0

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def has_room(self, cpus: int) -> bool:
        busy = sum(r.cpus for r in self.running)
        return not self.running or (len(self.running) < self.jobs and busy + cpus <= (os.cpu_count() or 1))

    def begin(self, name: str, cpus: int, folder: str) -> None:
        rows = os.path.join(folder, name + ".rows")
        process = subprocess.Popen(self.command(name, rows), stdout=subprocess.PIPE, text=True, start_new_session=True)
        self.running.append(Running(name, cpus, process, rows, time.monotonic()))

    def end(self, r: Running) -> None:
        """Takes over what the process of a case printed and wrote."""
        text = r.process.communicate()[0].splitlines()
        self.longest = max(self.longest, time.monotonic() - r.began)
        self.running.remove(r)
        print(text[0] if text else "%-22s FAILED: it printed nothing" % r.name, flush=True)
        if os.path.exists(r.rows):
            with open(r.rows) as f:
                self.rows += [json.loads(line) for line in f]
        elif text and "left out" in text[0]:
            self.left.append(r.name)
        else:
            self.failed += 1

    def stop(self) -> None:
        """SIGTERM to the sessions of all cases that still run: they take their mounts away."""
        for r in self.running:
            os.killpg(r.process.pid, signal.SIGTERM)
        for r in self.running:
            self.left.append(r.name)
            try:
                r.process.communicate(timeout=STOP_S)
            except subprocess.TimeoutExpired:
                os.killpg(r.process.pid, signal.SIGKILL)
                r.process.communicate()
        self.running = []

    def wait_for_one(self) -> None:
        while self.running and self.elapsed() < self.limit_s:
            ended = [r for r in self.running if r.process.poll() is not None]
            for r in ended:
                self.end(r)
            if ended:
                return
            time.sleep(0.1)
        self.stop()

    def run(self, cases: list[tuple[str, int]]) -> None:
        """Cases by name and the CPUs they keep busy; those that need most begin first."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                for name, cpus in sorted(cases, key=lambda c: -c[1]):
                    while self.running and not self.has_room(cpus):
                        self.wait_for_one()
                    if self.elapsed() + self.longest > self.limit_s:
                        self.left.append(name)
                    else:
                        self.begin(name, cpus, folder)
                while self.running:
                    self.wait_for_one()
            finally:
                self.stop()


def end_on_sigterm() -> None:
    """`finally` blocks run: mounts go away."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
