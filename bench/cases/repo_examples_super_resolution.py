"""PyTorch's super-resolution: crops of photographs in BSDS300's folders, no workers."""

# repo: examples
# needs: torchvision six

import layouts
import other

here = other.checkout("super_resolution")
layouts.pictures(here / "dataset/BSDS300/images/train", 24, (481, 321))
layouts.pictures(here / "dataset/BSDS300/images/test", 8, (481, 321))
other.run(here / "main.py", "--upscale_factor=3", "--batchSize=4", "--testBatchSize=4", "--nEpochs=2", "--threads=0")
other.answer(["decode", "transform"], ["PF1", "TH2", "CPU1"])
