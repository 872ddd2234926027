"""tf.data and Grain loops under `millrace trace`: nobody tells who made which batch, and still the report has the seconds waited of the script's own clock, the
class, and whether it was computing. Each framework where it is installed.

Runs alone (test-label: timing)."""
import json
import os
import subprocess
import sys
import tempfile

MILLRACE, BUILD = os.environ["MILLRACE"], os.environ["MR_BINARY_DIR"]
HEAD = '''
import json, os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
WAY, AHEAD, COMPUTE, STEPS = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
def item(i):
    end = time.thread_time() + (0.005 if WAY == "decode" else 0)
    while time.thread_time() < end:
        pass
    return np.float32(i)
def train(batches):
    waited, steps = 0.0, 0
    while True:
        begin = time.perf_counter()
        try:
            next(batches)
        except StopIteration:
            break
        waited += time.perf_counter() - begin
        steps += 1
        time.sleep(COMPUTE)
    print(json.dumps({"waited_s": waited, "steps": steps}))
'''
TENSORFLOW = HEAD + '''
import tensorflow as tf
ds = tf.data.Dataset.range(4 * STEPS).map(lambda i: tf.numpy_function(item, [i], tf.float32)).batch(4)
train(iter(ds.prefetch(AHEAD) if AHEAD else ds))
'''
GRAIN = HEAD + '''
import grain
class Numbers:
    def __len__(self): return 4 * STEPS
    def __getitem__(self, i): return int(i)
ds = grain.MapDataset.source(Numbers()).map(item).batch(4)
train(iter(ds.to_iter_dataset(grain.ReadOptions(num_threads=1 if AHEAD else 0, prefetch_buffer_size=AHEAD))))
'''
# way, batches ahead, compute, steps: class, first finding
CASES = [("decode", 2, 0.005, 30, "input-bound", {"TH2", "CPU1", "PF1"}), ("none", 2, 0.05, 20, "healthy", None)]
MORE = [("decode", 0, 0.02, 30, "input-bound", {"PF1", "TH2", "CPU1"})]


def check(folder, name, text, way, ahead, compute, steps, verdict, first):
    trace, script = os.path.join(folder, "t.mrt"), os.path.join(folder, "train.py")
    with open(script, "w") as f:
        f.write(text)
    command = [sys.executable, script, way, str(ahead), str(compute), str(steps)]
    done = subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, "--", *command], check=True, stdout=subprocess.PIPE)
    told = json.loads(done.stdout.decode().strip().splitlines()[-1])
    found = json.loads(subprocess.run([MILLRACE, "report", "--json", trace], check=True, stdout=subprocess.PIPE).stdout)
    what = (name, way, ahead, told, found["verdict"], found["stall"], [f["id"] for f in found["findings"]])
    assert len(found["steps"]) == told["steps"] == steps, (what, len(found["steps"]))
    assert abs(found["verdict"]["stall_s"] - told["waited_s"]) <= max(0.1 * told["waited_s"], 0.05), what
    assert found["verdict"]["class"] == verdict, what
    if first:
        assert found["verdict"]["cause"] == "decode" and found["findings"][0]["id"] in first, what
    print("%s, %s, %d ahead: %s, %s; waited %.2f s, by the report %.2f s" % (name, way, ahead, found["verdict"]["class"], found["verdict"]["cause"],
                                                                            told["waited_s"], found["verdict"]["stall_s"]))


def main():
    there = [(n, t) for n, t in (("tensorflow", TENSORFLOW), ("grain", GRAIN)) if subprocess.run([sys.executable, "-c", "import " + n], capture_output=True).returncode == 0]
    if not there:
        print("SKIP: there is neither TensorFlow nor Grain")
        sys.exit(77)
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        for name, text in there:
            for case in CASES + (MORE if os.environ.get("MR_TEST_FULL") else []):
                for left in (2, 1, 0):
                    try:
                        check(folder, name, text, *case)
                        break
                    except AssertionError as wrong:
                        if not left:
                            raise
                        print("again, because:", str(wrong)[:500])


main()
