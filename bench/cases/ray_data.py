"""Ray Data: blocks mapped by Ray's workers, batches in torch's format."""

# needs: ray pandas

import numpy
import ray
import torch
import case
from case import answer, step, take

if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, configure_logging=True, log_to_driver=False)

    def decode(rows: dict) -> dict:  # runs elsewhere: it knows nothing of this module
        import time

        end = time.thread_time() + 0.12
        while time.thread_time() < end:
            pass
        return {"x": numpy.random.rand(len(rows["id"]), 64).astype("float32")}

    data = ray.data.range(320, override_num_blocks=40).map_batches(decode, batch_size=8)
    for batch in take(data.iter_torch_batches(batch_size=8)):
        step(torch.as_tensor(batch["x"]), 20)
    ray.shutdown()
    case.waited -= case.first  # Ray starts its workers meanwhile: start-up
    answer("input-bound", ["decode", "transform"])
