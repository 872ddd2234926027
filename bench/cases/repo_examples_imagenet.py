"""PyTorch's ImageNet example: one worker decodes large photographs for a small network."""

# repo: examples
# needs: torchvision

import layouts
import other

here = other.checkout("imagenet")
layouts.folders(here / "data/train", 2, 30, (1600, 1200))
layouts.folders(here / "data/val", 2, 4, (1600, 1200))
other.run(
    here / "main.py", "data", "-a", "shufflenet_v2_x0_5", "-b", "4", "-j", "1", "--epochs=1", "--no-accel", "-p", "5"
)
other.answer(["decode", "transform", "cpu_wait"], ["TH2", "CPU1", "CPU2", "PF1"])
