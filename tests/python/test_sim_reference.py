"""The published simulator's rules a second time, written from their description alone and kept as simple as possible, against
`millrace sim --compat thesis`: every policy that keeps the order, on 24 random scenarios (other node, class and thread counts, sets that exceed
the storage, uneven shards, tiny sets). Sizes are constant, so that only the rules are compared; the order comes from `millrace order`."""
import json
import os
import random
import subprocess
import sys
import tempfile

MILLRACE = os.environ.get("MILLRACE")
if not MILLRACE:
    print("SKIP: MILLRACE is not set")
    sys.exit(77)


def at(curve, x):
    xs = sorted(curve)
    if x <= xs[0]:
        return curve[xs[0]]
    for a, b in zip(xs, xs[1:]):
        if x <= b:
            return curve[a] + (curve[b] - curve[a]) * (x - a) / (b - a)
    return curve[xs[-1]]


class Run:
    """One policy on one scenario. Times in seconds, sizes in MB; every sample has size s."""

    def __init__(self, c, streams, policy):
        self.c, self.policy, self.streams, self.s = c, policy, streams, c["size"]
        n = c["nodes"]
        self.held = [{} for _ in range(n)]  # id -> (class, since)
        self.holder, self.log = {}, [-1.0] * n
        self.now, self.counter, self.epoch = 0.0, 0, 0
        self.threads = [[0.0] * c["classes"][0]["threads"] for _ in range(n)]
        self.known = [set() for _ in range(n)]  # staged once: takes no space from then on
        self.fills = [[[] for _ in c["classes"]] for _ in range(n)]
        self.fill_threads = [[[0.0] * k["threads"] for k in c["classes"]] for _ in range(n)]
        self.pfs = 0

    def write(self):
        k = self.c["classes"][0]
        return max(self.s / self.c["preprocess"], self.s * k["threads"] / k["read"])

    def from_pfs(self, gamma):
        return self.s / min(self.c["link"], at(self.c["pfs"], gamma) / gamma)

    def gamma(self, node, when):
        if self.policy == "lbann-dynamic" and self.epoch == 0:
            return self.c["nodes"]
        return 1 + sum(self.log[i] >= when for i in range(self.c["nodes"]) if i != node)

    def best(self, node, id, when, own, peers):
        ways = [(self.from_pfs(self.gamma(node, when)), True)]
        if own and id in self.held[node] and self.held[node][id][1] <= when:
            ways.append((self.s / self.c["classes"][self.held[node][id][0]]["read"], False))
        h = self.holder.get(id)
        if peers and h not in (None, node) and self.held[h][id][1] <= when:
            ways.append((self.s / min(self.c["network"], self.c["classes"][self.held[h][id][0]]["read"]), False))
        return min(ways, key=lambda w: w[0])

    def take(self, node, when, way):
        if way[1]:
            self.log[node] = max(self.log[node], when)
            self.pfs += 1
        return when + way[0] + self.write()

    def hold(self, node, id, cls, when):
        self.held[node][id] = (cls, when)
        self.holder[id] = node

    def preload(self, cls):
        k, n, total = self.c["classes"][cls], self.c["nodes"], self.c["samples"]
        for i in range(n):
            room, seconds = k["capacity"], 0.0
            for id in range(i * total // n, (i + 1) * total // n):
                if self.s > room:
                    break
                room -= self.s
                seconds += (self.from_pfs(n) + self.write()) / k["threads"]
                self.pfs += 1
                self.hold(i, id, cls, 0.0)
        self.now = seconds  # the last node's
        for h in self.held:
            for id in h:
                h[id] = (h[id][0], seconds)

    def plan(self):
        for i in range(self.c["nodes"]):
            count, first = {}, {}
            for e, stream in enumerate(self.streams):
                for step in range(len(stream) // self.c["batch"]):
                    for k, id in enumerate(stream[step * self.c["batch"] + i:(step + 1) * self.c["batch"]:self.c["nodes"]]):
                        count[id] = count.get(id, 0) + 1
                        first.setdefault(id, (e, step, k))
            cls, room = 1, self.c["classes"][1]["capacity"] if len(self.c["classes"]) > 1 else 0
            for id in sorted(count, key=lambda id: (-count[id], id)):
                while cls < len(self.c["classes"]) and self.s > room:
                    cls += 1
                    room = self.c["classes"][cls]["capacity"] if cls < len(self.c["classes"]) else 0
                if cls == len(self.c["classes"]):
                    break
                room -= self.s
                self.fills[i][cls].append(id)
            for ids in self.fills[i]:
                ids.sort(key=lambda id: first[id])

    def fill(self, node):
        for j in range(1, len(self.c["classes"])):
            clocks = self.fill_threads[node][j]
            while self.fills[node][j] and min(clocks) <= self.now:
                k = clocks.index(min(clocks))
                id = self.fills[node][j].pop(0)
                clocks[k] = self.take(node, clocks[k], self.best(node, id, clocks[k], False, True))
                self.hold(node, id, j, clocks[k])

    def staged_ahead(self, id):
        return self.policy in ("staging", "nopfs", "locality-aware") or (self.policy == "lbann-dynamic" and self.epoch == 0) or id in self.holder

    def stage(self, node, mine, state, per, step):
        ready, used, fresh = state["ready"], state["used"], state["fresh"]
        if step > 0:
            for id in mine[(step - 1) * per:step * per]:
                if id in fresh:
                    used -= self.s
                    fresh.discard(id)
        ready.extend([float("inf")] * (step * per - len(ready)))  # used before the buffer had room for it
        while len(ready) < len(mine):
            id = mine[len(ready)]
            space = 0 if id in self.known[node] else self.s
            if used + space > self.c["classes"][0]["capacity"] * (1 + 1e-12):
                break
            used += space
            if space:
                self.known[node].add(id)
                fresh.add(id)
            if self.staged_ahead(id):
                clocks = self.threads[node]
                k = self.counter % len(clocks)
                self.counter += 1
                start = max(clocks[k], self.now)
                own = self.policy != "staging"
                clocks[k] = self.take(node, start, self.best(node, id, start, own, own and self.policy != "nopfs"))
                ready.append(clocks[k])
            else:
                ready.append(float("inf"))
        state["used"] = used

    def run(self):
        c, n, b = self.c, self.c["nodes"], self.c["batch"]
        per = b // n
        if self.policy in ("deepio-ordered", "lbann-preload"):
            self.preload(1)
        elif self.policy == "locality-aware":
            self.preload(len(c["classes"]) - 1)
        elif self.policy == "nopfs":
            self.plan()
        for self.epoch, stream in enumerate(self.streams):
            steps = len(stream) // b
            mine = [[id for h in range(steps) for id in stream[h * b + i:(h + 1) * b:n]] for i in range(n)]
            states = [{"ready": [], "used": 0.0, "fresh": set()} for _ in range(n)]
            for step in range(steps):
                ends = []
                for i in range(n):
                    if self.policy == "nopfs":
                        self.fill(i)
                    if self.policy not in ("naive", "perfect"):
                        self.stage(i, mine[i], states[i], per, step)
                    t = self.now
                    for k in range(step * per, (step + 1) * per):
                        if self.policy != "perfect":
                            classes = self.policy not in ("naive", "staging")
                            way = self.best(i, mine[i][k], t, classes, classes)
                            staged = max(t, states[i]["ready"][k]) if k < len(states[i]["ready"]) else float("inf")
                            t = staged if staged <= t + way[0] + self.write() else self.take(i, t, way)
                        t += self.s / c["compute"]
                    ends.append(t)
                self.now = max(ends)
            if self.policy == "lbann-dynamic" and self.epoch == 0:
                for i in range(n):
                    for id in mine[i][:int(c["classes"][1]["capacity"] / self.s + 1e-9)]:
                        self.hold(i, id, 1, self.now)
        return self.now


def scenario(rng):
    n = rng.choice([1, 2, 3, 4, 5, 8])
    batch = n * rng.choice([1, 2, 5, 12])
    samples = batch * rng.randint(1, 12) + rng.randrange(batch)
    size = round(rng.choice([0.03, 0.5, 1, 7.25]), 6)
    rate, pfs = 0, {}
    for clients in (1, 2, 4, 8):
        rate += rng.randint(10, 200)
        pfs[clients] = rate
    # Capacities in whole samples and a half: whether the last one fits must not hang on rounding.
    hold = lambda share: size * (max(1, int(share * samples)) + 0.5)
    classes = [{"capacity": hold(rng.choice([0.05, 0.2, 0.6])), "threads": rng.randint(1, 4), "read": rng.randint(2000, 20000)}]
    for _ in range(rng.randint(1, 3)):
        classes.append({"capacity": hold(rng.choice([0.02, 0.2, 0.5, 2])), "threads": rng.randint(1, 3), "read": rng.randint(50, 20000)})
    return {"nodes": n, "batch": batch, "samples": samples, "size": size, "epochs": rng.randint(1, 5), "compute": rng.randint(20, 500),
            "preprocess": rng.randint(50, 1000), "network": rng.randint(100, 10000), "link": rng.randint(50, 2000), "pfs": pfs,
            "classes": classes, "seed": rng.randint(1, 1000)}


def text(c):
    mb = lambda v: f"{round(v * 1e6)}"
    classes = ", ".join(f"{{capacity: {mb(k['capacity'])}, threads: {k['threads']}, read: {mb(k['read'])}}}" for k in c["classes"])
    pfs = ", ".join(f"{k}: {mb(v)}" for k, v in c["pfs"].items())
    return (f"system: {{compute: {mb(c['compute'])}, preprocess: {mb(c['preprocess'])}, network: {mb(c['network'])}, "
            f"pfs: {{link: {mb(c['link'])}, bandwidth: {{{pfs}}}}}, classes: [{classes}]}}\n"
            f"dataset: {{samples: {c['samples']}, size: {mb(c['size'])}}}\nnodes: {c['nodes']}\nbatch: {c['batch']}\nepochs: {c['epochs']}\n"
            f"seed: {c['seed']}\norder: torch\n")


POLICIES = "perfect naive staging deepio-ordered lbann-preload lbann-dynamic locality-aware nopfs".split()
rng, compared = random.Random(20), 0
with tempfile.TemporaryDirectory() as folder:
    for number in range(24):
        c = scenario(rng)
        path = os.path.join(folder, "s.yaml")
        with open(path, "w") as f:
            f.write(text(c))
        out = subprocess.run([MILLRACE, "sim", path, "--compat", "thesis", "-p", ",".join(POLICIES), "--json"], check=True, capture_output=True, text=True)
        rows = {p["name"]: p for p in json.loads(out.stdout)["policies"]}
        streams = []
        for epoch in range(c["epochs"]):
            order = subprocess.run([MILLRACE, "order", "--samples", str(c["samples"]), "--mode", "torch", "--seed", str(c["seed"]), "--epoch",
                                    str(epoch)], check=True, capture_output=True, text=True).stdout
            streams.append([int(id) for id in order.split()][:c["samples"] // c["batch"] * c["batch"]])
        fits = c["size"] * c["samples"] <= c["nodes"] * c["classes"][1]["capacity"]
        for policy in POLICIES:
            have = rows[policy]
            assert have["possible"] == (not policy.startswith("lbann") or fits), (number, policy, have)
            if not have["possible"]:
                continue
            run = Run(c, streams, policy)
            want = run.run()
            assert abs(have["time_s"] / want - 1) < 1e-5, (number, policy, have["time_s"], want, c)
            assert abs(have["pfs_bytes"] - run.pfs * c["size"] * 1e6) <= 1e-5 * run.pfs * c["size"] * 1e6 + 1, (number, policy, have["pfs_bytes"], run.pfs, c)
            compared += 1
print(f"{compared} rows of 24 scenarios agree")
