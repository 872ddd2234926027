"""PyTorch's MNIST example."""

# repo: examples
# needs: torchvision

import layouts
import other

here = other.checkout("mnist")
layouts.mnist(here.parent / "data", 1500, 500)
other.run(here / "main.py", "--epochs=1", "--no-accel", "--batch-size=32")
other.answer(["decode", "transform"], ["PF1", "TH2", "CPU1", "EV1"])
