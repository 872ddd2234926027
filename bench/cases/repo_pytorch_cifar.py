"""pytorch-cifar with its smallest network: two workers crop and flip."""

# repo: pytorch-cifar
# needs: torchvision

import layouts
import other

here = other.checkout()
layouts.cifar10(here / "data", 500)
(here / "utils.py").write_text(
    (here / "utils.py").read_text().replace("os.popen('stty size', 'r').read().split()", "24, 80")
)
other.run(here / "main.py", edits={"net = SimpleDLA()": "net = LeNet()", "start_epoch+200": "start_epoch+2"})
other.answer(["decode", "transform", "cpu_wait", "queue"], ["TH2", "CPU1", "CPU2", "PF1", "EP1", "EV1"])
