"""PyTorch's variational autoencoder: small steps, pictures decoded in the loop."""

# repo: examples
# needs: torchvision

import layouts
import other

here = other.checkout("vae")
layouts.mnist(here.parent / "data", 4000, 500)
(here / "results").mkdir(exist_ok=True)
other.run(here / "main.py", "--epochs=2", "--no-accel")
other.answer(["decode", "transform"], ["PF1", "TH2", "CPU1"])
