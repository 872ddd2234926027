"""PyTorch-GAN's first one: two optimisers, pictures resized in the loop."""

# repo: PyTorch-GAN
# needs: torchvision

import layouts
import other

here = other.checkout()
layouts.mnist(here / "data/mnist", 6000, 100)
other.run(here / "implementations/gan/gan.py", "--n_epochs=1")
other.answer(["decode", "transform"], ["PF1", "TH2", "CPU1"])
