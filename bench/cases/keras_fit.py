"""Keras' fit over tf.data: a map in Python that takes CPU time."""

# needs: tensorflow

import json
import os
import time

os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy
import tensorflow as tf

waited = 0.0


def decode(i: object) -> numpy.ndarray:
    end = time.thread_time() + 0.01
    while time.thread_time() < end:
        pass
    return numpy.random.rand(64).astype("float32")


def row(i: object) -> tuple:
    x = tf.numpy_function(decode, [i], tf.float32)
    x.set_shape([64])
    return x, tf.constant([1.0])


model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
model.compile("sgd", "mse")
data = tf.data.Dataset.range(320).map(row).batch(8)
begin = time.perf_counter()
model.fit(data, epochs=1, verbose=0)
loop = time.perf_counter() - begin
# No clock fits between Keras and its iterator: what the maps take is waited for, as nothing is read ahead.
print(
    json.dumps(
        {
            "class": "input-bound",
            "causes": ["decode", "transform"],
            "first": ["PF1", "TH2"],
            "waited_s": None,
            "loop_s": loop,
        }
    )
)
