"""PyTorch's word language model: all text in memory, weights changed by hand instead of by an optimiser."""

# repo: examples
# needs: torch.accelerator

import random

import other

here = other.checkout("word_language_model")
words = ["w%d" % i for i in range(800)]
for name, lines in (("train", 3000), ("valid", 200), ("test", 200)):
    text = "\n".join(" ".join(random.choices(words, k=12)) for _ in range(lines))
    (here / "data/wikitext-2").mkdir(parents=True, exist_ok=True)
    (here / "data/wikitext-2" / (name + ".txt")).write_text(text)
other.run(
    here / "main.py", "--epochs=1", "--emsize=64", "--nhid=64", "--nlayers=1", "--log-interval=20",
    edits={"def get_batch(source, i):": "import case\n@case.clocked\ndef get_batch(source, i):"},
)  # fmt: skip
other.answer(["decode"])
