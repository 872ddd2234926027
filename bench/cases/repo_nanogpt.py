"""nanoGPT's train.py on a CPU: batches from a memory map, evaluation in between."""

# repo: nanoGPT

import pickle

import numpy
import other

here = other.checkout()
(here / "data/shakespeare_char/meta.pkl").write_bytes(pickle.dumps({"vocab_size": 64}))
for name in ("train", "val"):
    numpy.random.default_rng(1).integers(0, 64, 1000000, dtype="uint16").tofile(
        here / "data/shakespeare_char" / (name + ".bin")
    )
settings = dict(
    device="cpu", compile=False, block_size=64, batch_size=8, n_layer=2, n_head=2, n_embd=64, dropout=0.0,
    warmup_iters=10, eval_interval=40, eval_iters=4, log_interval=10, max_iters=100, lr_decay_iters=100, always_save_checkpoint=False,
)  # fmt: skip
other.run(
    here / "train.py",
    "config/train_shakespeare_char.py",
    *("--%s=%s" % pair for pair in settings.items()),
    edits={"def get_batch(split):": "import case\n@case.clocked\ndef get_batch(split):"},
)
other.answer()
