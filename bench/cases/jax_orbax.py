"""JAX: batches by a generator that reads, a jitted step, Orbax now and then."""

# needs: jax orbax.checkpoint

import json
import os
import time

import jax
import jax.numpy as jnp
import numpy
import orbax.checkpoint
from case import FOLDER, Waiting, slow_read
import case


def batches() -> object:
    for _ in range(60):
        slow_read(20)
        yield numpy.random.rand(8, 64).astype("float32")


@jax.jit
def train(w: object, x: object) -> object:
    for _ in range(20):
        x = x + 0.01 * jnp.tanh(x @ jnp.ones((64, 64)))
    return w - 0.01 * jax.grad(lambda v: ((x @ v) ** 2).mean())(w)


w = jnp.zeros((64, 1))
manager = orbax.checkpoint.CheckpointManager(os.path.join(FOLDER, "orbax"))
source = batches()
for i in range(60):
    with Waiting():
        batch = next(source)
    w = train(w, batch)
    w.block_until_ready()
    time.sleep(0.01)
    if i % 30 == 29:
        manager.save(i, args=orbax.checkpoint.args.StandardSave({"w": w}))
manager.wait_until_finished()
print(
    json.dumps({"class": "input-bound", "causes": ["storage"], "first": ["PF1", "TH1", "CA1"], "waited_s": case.waited})
)
