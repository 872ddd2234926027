"""PyTorch's DCGAN over a folder of photographs, small networks: two workers decode."""

# repo: examples
# needs: torchvision

import layouts
import other

here = other.checkout("dcgan")
layouts.folders(here / "photos", 2, 30, (1600, 1200))
other.run(
    here / "main.py", "--dataset=folder", "--dataroot=photos", "--workers=1", "--batchSize=8", "--ngf=8", "--ndf=8",
    "--niter=1",
)  # fmt: skip
other.answer(["decode", "transform", "cpu_wait"], ["TH2", "CPU1", "CPU2", "PF1"])
