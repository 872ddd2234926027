"""makemore's bigrams: words from a text file, a loader without workers, steps of a millisecond."""

# repo: makemore
# needs: tensorboard

import random

import other

here = other.checkout()
words = ["".join(random.choices("abcdefghijklmnopqrstuvwxyz", k=random.randint(3, 12))) for _ in range(20000)]
(here / "names.txt").write_text("\n".join(words))
other.run(here / "makemore.py", "--type=bigram", "--num-workers=0", "--max-steps=900", "--batch-size=64")
other.answer(["decode", "queue"], ["PF1", "TH2", "CPU1"])
