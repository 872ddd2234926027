"""TensorFlow with a loop of its own: records parsed one by one, tf.function for the step."""

# needs: tensorflow

import json
import os
import sys
import time

os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy
import tensorflow as tf

path = os.path.join(sys.argv[1], "rows.tfrecord")
picture = tf.io.encode_jpeg(numpy.random.randint(0, 256, (600, 800, 3), dtype="uint8")).numpy()
with tf.io.TFRecordWriter(path) as out:
    for _ in range(200):
        out.write(picture)
weights = tf.Variable(tf.random.normal([64, 1]))
optimizer = tf.keras.optimizers.SGD(0.01)


@tf.function
def train(x: object) -> object:
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(x @ weights))
    optimizer.apply_gradients([(tape.gradient(loss, weights), weights)])
    return loss


data = tf.data.TFRecordDataset(path).map(lambda r: tf.cast(tf.io.decode_jpeg(r)[:64, 0, 0], tf.float32)).batch(4)
waited, iterator = 0.0, iter(data)
while True:
    begin = time.perf_counter()
    batch = next(iterator, None)
    waited += time.perf_counter() - begin
    if batch is None:
        break
    train(batch)
    time.sleep(0.01)
print(
    json.dumps({"class": "input-bound", "causes": ["decode", "transform"], "first": ["PF1", "TH2"], "waited_s": waited})
)
