"""The tf.data service: a dispatcher and a worker process map the rows, a training loop in eager mode takes them."""

# needs: tensorflow

import json
import multiprocessing
import os
import time

os.environ["CUDA_VISIBLE_DEVICES"] = ""
waited = 0.0


def serve(address: str, ready: object) -> None:
    import tensorflow as tf

    worker = tf.data.experimental.service.WorkerServer(
        tf.data.experimental.service.WorkerConfig(dispatcher_address=address.split("://")[1])
    )
    ready.set()
    worker.join()


def main() -> None:
    global waited
    import tensorflow as tf

    dispatcher = tf.data.experimental.service.DispatchServer()
    spawn = multiprocessing.get_context("spawn")
    ready = spawn.Event()
    worker = spawn.Process(target=serve, args=(dispatcher.target, ready), daemon=True)
    worker.start()
    ready.wait()

    def row(i: object) -> object:
        x = tf.random.stateless_uniform((256, 256), [1, 2]) + tf.cast(i, tf.float32)
        for _ in range(12):
            x = tf.matmul(x, x) / 1000.0
        return x[0, :64]

    data = tf.data.Dataset.range(240).map(row).batch(8)
    data = data.apply(
        tf.data.experimental.service.distribute(processing_mode="parallel_epochs", service=dispatcher.target)
    )
    w = tf.Variable(tf.zeros((64, 1)))
    optimizer = tf.keras.optimizers.SGD(0.01)
    rows = iter(data)
    while True:
        begin = time.perf_counter()
        x = next(rows, None)
        if x is None:
            break
        waited += time.perf_counter() - begin
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ w) ** 2)
        optimizer.apply_gradients([(tape.gradient(loss, w), w)])
        end = time.perf_counter() + 0.01
        while time.perf_counter() < end:
            pass
    worker.terminate()
    print(json.dumps({"class": "input-bound", "causes": None, "first": None, "waited_s": waited}))


if __name__ == "__main__":
    main()
