"""pytorch-tutorial's language model: a matrix of ids in memory, a perplexity print."""

# repo: pytorch-tutorial

import random

import other

here = other.checkout("tutorials/02-intermediate/language_model")
(here / "data").mkdir(exist_ok=True)
words = ["w%d" % i for i in range(500)]
(here / "data/train.txt").write_text("\n".join(" ".join(random.choices(words, k=14)) for _ in range(4000)))
other.run(
    here / "main.py",
    edits={
        "num_epochs = 5": "num_epochs = 1",
        "embed_size = 128": "embed_size = 64",
        "hidden_size = 1024": "hidden_size = 128",
    },
)
other.answer(["decode"])
