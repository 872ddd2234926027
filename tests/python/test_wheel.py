"""A wheel built from the tree, installed without an index in a fresh environment: the command, the presets, the tracer and the loader work,
and no shared library comes from outside but glibc. Only in `make test-full` (it builds everything once more)."""
import os
import subprocess
import sys
import tempfile
import zipfile

if not os.environ.get("MR_TEST_FULL"):
    print("SKIP: builds everything once more; runs in make test-full")
    sys.exit(77)

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PROGRAM = """
import os, subprocess, sys, millrace
from millrace import _core, trace
assert os.path.dirname(_core.__file__).startswith(sys.prefix)
program = os.path.join(millrace.home(), "bin", "millrace")
subprocess.run([program, "-q", "gen", "set", "--format", "jpeg", "--files", "6", "--dims", "40x50x3"], check=True, stdout=subprocess.DEVNULL)
loader = _core.Loader("set", 4, preprocess=dict(crop=3, height=24, width=24, rgb=1), flags=_core.DENSE)
loader.start_epoch(0)
assert loader.next().data.shape == (4, 24, 24, 3)
mapped = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
foreign = [m for m in mapped if any(n in m for n in ("libjpeg", "libpng", "libzstd", "libyaml", "libjansson", "libdeflate", "libmillrace"))]
assert foreign and all(m.startswith(sys.prefix) for m in foreign), foreign
"""

with tempfile.TemporaryDirectory(prefix="millrace-wheel-") as folder:
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "-w", folder, ROOT], check=True)
    wheel = [f for f in os.listdir(folder) if f.endswith(".whl")][0]
    assert "-abi3-manylinux_2_" in wheel, wheel
    subprocess.run([sys.executable, "-m", "venv", os.path.join(folder, "env")], check=True)
    python = os.path.join(folder, "env", "bin", "python3")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", os.path.join(folder, wheel)], check=True)
    with zipfile.ZipFile(os.path.join(folder, wheel)) as packed:
        names = packed.namelist()
        about = packed.read(next(n for n in names if n.endswith("/METADATA"))).decode()
    assert {"millrace/py.typed", "millrace/_core.pyi"} <= set(names), names
    assert "\nLicense: BSD-3-Clause\n" in about and "\nClassifier: Typing :: Typed\n" in about, about[:1000]
    clean = {"PATH": "/usr/bin:/bin", "HOME": folder}
    subprocess.run([python, "-c", PROGRAM], check=True, cwd=folder, env=clean)
    assert "millrace" in subprocess.run([python, "-m", "millrace", "--version"], check=True, capture_output=True, text=True, env=clean).stdout
    script = os.path.join(folder, "env", "bin", "millrace")
    subprocess.run([script, "workloads", "show", "unet3d_h100"], check=True, stdout=subprocess.DEVNULL, env=clean)
    traced = "from millrace import trace; assert trace.active()"
    subprocess.run([script, "-q", "trace", "--python", "-o", os.path.join(folder, "t"), "--", python, "-c", traced], check=True, env=clean, stdout=subprocess.DEVNULL)
print("wheel: installs and works without anything else")
