"""pytorch-tutorial's convolutional network over MNIST."""

# repo: pytorch-tutorial
# needs: torchvision

import layouts
import other

here = other.checkout() / "tutorials"
layouts.mnist(here / "data", 2000, 300)
other.run(here / "02-intermediate/convolutional_neural_network/main.py", edits={"num_epochs = 5": "num_epochs = 1"})
other.answer(["decode", "transform"], ["PF1", "TH2", "CPU1"])
