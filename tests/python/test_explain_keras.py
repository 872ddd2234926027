"""Waits inside compiled functions of TensorFlow: Keras' fit, and a training step that calls next(iterator) in a tf.function. The report has the seconds that
the script's own clock has, the class, and training told from evaluation; results are the same bits as without the tracer. Where the next batch is fetched
while the last one is computed (steps_per_execution) the verdict stays "incomplete".

Only with MR_TEST_FULL=1: it needs TensorFlow. Runs alone (test-label: timing full)."""
import json
import os
import subprocess
import sys
import tempfile

MILLRACE, BUILD = os.environ["MILLRACE"], os.environ["MR_BINARY_DIR"]
HEAD = '''
import json, os, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import tensorflow as tf
import keras
WAY, COMPUTE, STEPS, MORE = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
keras.utils.set_random_seed(1)
def item(i):
    if WAY == "starved":
        time.sleep(0.005)  # gives up Python's lock, as decoders do
    return np.full(32, float(i) / 1000, np.float32), np.float32(i % 2)
def load(i):
    x, y = tf.numpy_function(item, [i], [tf.float32, tf.float32])
    x.set_shape((32,))
    y.set_shape(())
    return x, y
def data(steps):
    return tf.data.Dataset.range(4 * steps).map(load).batch(4).prefetch(2)
def net():
    return keras.Sequential([keras.layers.Input((32,)), keras.layers.Dense(16, activation="relu"), keras.layers.Dropout(0.3), keras.layers.Dense(1)])
'''
FIT = HEAD + '''
class Clock(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        self.took = []
    def on_train_batch_begin(self, batch, logs=None):
        self.begin = time.perf_counter()
    def on_train_batch_end(self, batch, logs=None):
        self.took.append(time.perf_counter() - self.begin)
        time.sleep(COMPUTE)
model = net()
model.compile("adam", "mse", steps_per_execution=MORE)
clock = Clock()
seen = model.fit(data(STEPS), epochs=2, verbose=0, callbacks=[clock], validation_data=data(3))
print(json.dumps({"steps": 2 * STEPS, "later_s": sum(clock.took[1:]), "result": seen.history["loss"]}))  # of the second epoch, without its first step
'''
LOOP = HEAD + '''
model, optimizer = net(), keras.optimizers.SGD(0.01)
@tf.function
def step(batches):
    x, y = next(batches)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True)[:, 0] - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss
took = []
for epoch in range(2):
    batches, took, losses = iter(data(STEPS)), [], []
    while True:
        begin = time.perf_counter()
        try:
            losses.append(float(step(batches)))
        except (StopIteration, tf.errors.OutOfRangeError):
            break
        took.append(time.perf_counter() - begin)
        time.sleep(COMPUTE)
print(json.dumps({"steps": 2 * STEPS, "later_s": sum(took[1:]), "result": losses}))
'''
EAGER = HEAD + '''
model, optimizer = net(), keras.optimizers.SGD(0.01)
@tf.function
def step(x, y):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean((model(x, training=True)[:, 0] - y) ** 2)
    optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
    return loss
for epoch in range(2):
    took, losses, begin = [], [], time.perf_counter()
    for x, y in data(STEPS):
        took.append(time.perf_counter() - begin)
        losses.append(float(step(x, y)))
        time.sleep(COMPUTE)
        begin = time.perf_counter()
print(json.dumps({"steps": 2 * STEPS, "later_s": sum(took[1:]), "result": losses}))
'''
# name, script, way, compute, steps, steps per execution: class
CASES = [
    ("fit", FIT, "starved", 0.002, 30, 1, "input-bound"),
    ("fit", FIT, "none", 0.03, 30, 1, "healthy"),
    ("fit", FIT, "starved", 0.002, 32, 4, "incomplete"),
    ("tf.function", LOOP, "starved", 0.002, 30, 1, "input-bound"),
    ("tf.function", LOOP, "none", 0.03, 30, 1, "healthy"),
    ("for x in dataset", EAGER, "starved", 0.002, 30, 1, "input-bound"),
]
COMPUTES = 0.005  # s at most that a step of these small nets takes, of which own clocks know nothing


def check(folder, name, text, way, compute, steps, more, verdict):
    trace, script = os.path.join(folder, "t.mrt"), os.path.join(folder, "train.py")
    with open(script, "w") as f:
        f.write(text)
    command = [sys.executable, script, way, str(compute), str(steps), str(more)]
    env = dict(os.environ, PYTHONDONTWRITEBYTECODE="1")
    plain = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env).stdout.decode().strip().splitlines()[-1])
    done = subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, "--", *command], check=True, stdout=subprocess.PIPE, env=env)
    told = json.loads(done.stdout.decode().strip().splitlines()[-1])
    found = json.loads(subprocess.run([MILLRACE, "report", "--json", trace], check=True, stdout=subprocess.PIPE).stdout)
    what = (name, way, more, told, found["verdict"], found["stall"])
    assert told["result"] == plain["result"], (what, plain)
    assert found["verdict"]["class"] == verdict, what
    if verdict == "incomplete":
        return
    train = [s for s in found["steps"] if s.get("phase", "train") == "train"]
    assert len(train) == told["steps"] == 2 * steps, (what, len(train))
    later = sum(s["time"]["data_stall_s"] for s in train[steps + 1:])
    assert -0.05 <= told["later_s"] - later <= 0.1 * told["later_s"] + COMPUTES * steps, (what, later)
    print("%s, %s: %s; in batches %.2f s, of that by the report %.2f s waited" % (name, way, verdict, told["later_s"], later))


PIPELINES = """
import os, sys
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import tensorflow as tf
from millrace.trace.compiled_waits import AUTO, read_ahead
cpus, auto = len(os.sched_getaffinity(0)), tf.data.AUTOTUNE
rows, off = tf.data.Dataset.range(8), tf.data.Options()
off.experimental_optimization.inject_prefetch = False
def said(data):
    told = read_ahead(data)
    return told["workers"], told["prefetch"]
assert said(rows.map(lambda x: x).batch(2)) == (1, AUTO)  # tf.data puts a prefetch behind it
assert said(rows.map(lambda x: x).batch(2).with_options(off)) == (0, 0)
assert said(rows.map(lambda x: x, num_parallel_calls=3).batch(2).prefetch(4)) == (3, 4)
assert said(rows.map(lambda x: x, num_parallel_calls=auto).batch(2).prefetch(auto)) == (cpus, AUTO)
assert said(rows.interleave(lambda x: tf.data.Dataset.from_tensors(x), num_parallel_calls=2).batch(2)) == (2, AUTO)
"""


def main():
    has = subprocess.run([sys.executable, "-c", "import tensorflow, keras"], capture_output=True).returncode == 0
    if not os.environ.get("MR_TEST_FULL") or not has:
        print("SKIP: there is no TensorFlow" if not has else "SKIP: takes a minute; MR_TEST_FULL=1 runs it")
        sys.exit(77)
    subprocess.run([sys.executable, "-c", PIPELINES], check=True, env=dict(os.environ, PYTHONPATH=os.path.join(BUILD, "python")))
    with tempfile.TemporaryDirectory(dir=BUILD) as folder:
        for case in CASES:
            for left in (2, 1, 0):
                try:
                    check(folder, *case)
                    break
                except AssertionError as wrong:
                    if not left:
                        raise
                    print("again, because:", str(wrong)[:500])


main()
