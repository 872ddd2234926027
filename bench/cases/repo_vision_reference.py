"""torchvision's reference training of classification."""

# repo: vision
# needs: torchvision

import layouts
import other

here = other.checkout("references/classification")
layouts.folders(here / "data/train", 5, 8, (1024, 768))
layouts.folders(here / "data/val", 5, 2, (1024, 768))
other.run(
    here / "train.py", "--data-path=data", "--device=cpu", "--model=shufflenet_v2_x0_5", "-b=4", "-j=1", "--epochs=1",
    "--output-dir=out",
)  # fmt: skip
other.answer(["decode", "transform", "cpu_wait"], ["TH2", "CPU1", "CPU2", "PF1", "EV1"])
