"""llama2.c's train.py: a DataLoader without workers behind a generator, evaluation with loaders of its own."""

# repo: llama2.c
# needs: requests tqdm sentencepiece

import numpy
import other

here = other.checkout()
(here / "data/tok512").mkdir(parents=True)
for i in range(3):
    numpy.random.default_rng(i).integers(0, 512, 200000, dtype="uint16").tofile(
        here / "data/tok512" / ("data%02d.bin" % i)
    )
settings = dict(
    device="cpu", dtype="float32", compile=False, vocab_source="custom", vocab_size=512, batch_size=8, max_seq_len=64,
    dim=96, n_layers=3, n_heads=4, n_kv_heads=4, gradient_accumulation_steps=2, max_iters=30, eval_interval=15,
    eval_iters=4, warmup_iters=5,
)  # fmt: skip
other.run(here / "train.py", *("--%s=%s" % pair for pair in settings.items()))
other.answer(["decode", "queue"], ["PF1", "TH2", "CPU1"])
