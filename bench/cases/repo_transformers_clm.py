"""transformers' run_clm_no_trainer.py: a small GPT-2 over a text file, grouped and tokenised before, checkpoints by
accelerate."""

# repo: transformers
# needs: transformers datasets accelerate

import json
import os
import random

import other

os.environ["HF_HUB_OFFLINE"] = "1"
here = other.checkout("examples/pytorch/language-modeling")
words = ["w%d" % i for i in range(200)]
from tokenizers import Tokenizer, models, pre_tokenizers  # noqa: E402

tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["<s>", "<unk>"] + words)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
(here / "tok").mkdir()
tokenizer.save(str(here / "tok/tokenizer.json"))
(here / "tok/tokenizer_config.json").write_text(
    json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "eos_token": "<s>"})
)
(here / "tok/config.json").write_text(
    json.dumps({"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 202})
)
for name, lines in (("train", 400), ("valid", 40)):
    text = "\n".join(" ".join(random.choices(words, k=40)) for _ in range(lines))
    (here / (name + ".txt")).write_text(text)
other.run(
    here / "run_clm_no_trainer.py", "--config_name=tok", "--tokenizer_name=tok", "--train_file=train.txt",
    "--validation_file=valid.txt", "--block_size=64", "--per_device_train_batch_size=4", "--num_train_epochs=1",
    "--output_dir=out", edits={"check_min_version(": "str(", "DistributedType.TPU": "DistributedType.XLA"},
)  # fmt: skip
other.answer(["decode", "queue"])
