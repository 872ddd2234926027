"""minGPT's character model: a Trainer class with a loader that never ends."""

# repo: minGPT

import random

import other

here = other.checkout()
text = here / "projects/chargpt/input.txt"
text.write_text("O God, O God! " + "".join(random.choices("abcdefghij klmn\nopqrstuvwxyz", k=300000)))
other.sys.path.insert(0, str(here))
other.run(
    here / "projects/chargpt/chargpt.py",
    "--model.model_type=gpt-nano",
    "--trainer.max_iters=40",
    "--trainer.num_workers=1",
    "--data.block_size=64",
)
other.answer(["decode", "queue", "cpu_wait"], ["PF1", "TH2", "CPU1", "CPU2"])
