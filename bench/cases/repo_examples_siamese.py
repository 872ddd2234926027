"""PyTorch's siamese network: pairs of pictures that lie in memory, a ResNet."""

# repo: examples
# needs: torchvision torch.accelerator

import layouts
import other

here = other.checkout("siamese_network")
layouts.mnist(here.parent / "data", 160, 30)
other.run(here / "main.py", "--epochs=1", "--no-accel", "--batch-size=16", "--test-batch-size=50")
other.answer(["decode", "transform", "queue"], ["PF1", "TH2", "CPU1"])
