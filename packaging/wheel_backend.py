"""Builds a self-contained wheel: PEP 517's hooks over CMake and zipfile, so that `pip install .` needs no other
package.

The wheel has the Python sources, the extensions (Limited API: one wheel for every Python from 3.10 on) and, in
millrace/_home, the command, the tracer, libmillrace.so, the presets and every shared library these need beyond glibc.
It runs on any Linux of this architecture whose glibc is as new as the newest symbol used, which the wheel's name says.

    python3 packaging/wheel_backend.py [FOLDER]        # without pip; the wheel goes to FOLDER (build)
"""

import base64
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(ROOT, "build", "wheel")
GLIBC = re.compile(r"^(linux-vdso|ld-linux.*|lib(c|m|dl|pthread|rt|gcc_s))\.so")
TAG_PYTHON = "cp310-abi3"


def version():
    with open(os.path.join(ROOT, "include", "millrace", "version.h")) as header:
        return re.search(r'MR_VERSION "([0-9.]+)"', header.read()).group(1)


def run(*command):
    subprocess.run(command, cwd=ROOT, check=True, stdout=sys.stderr)


def build():
    options = ["-DMR_WHEEL=ON", "-DMR_WITH_MPI=OFF", "-DMR_WITH_UCX=OFF", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"]
    ninja = ["-G", "Ninja"] if shutil.which("ninja") else []
    run("cmake", "-S", ROOT, "-B", BUILD, *ninja, *options)
    targets = ["millrace", "millrace_trace", "millrace_shared", "millrace_python"]
    run("cmake", "--build", BUILD, "-j", str(os.cpu_count() or 1), "--target", *targets)


def needed(path):
    """Shared libraries a file needs, with what those need, beyond glibc: name -> path."""
    environment = dict(os.environ, LD_LIBRARY_PATH=os.path.join(BUILD, "lib"))
    text = subprocess.run(["ldd", path], check=True, capture_output=True, text=True, env=environment).stdout
    found = {}
    for line in text.splitlines():
        match = re.match(r"\s*(\S+) => (\S+)", line)
        if match and not GLIBC.match(match.group(1)):
            if match.group(2) == "not":
                raise RuntimeError(f"{path} needs {match.group(1)}, which is not installed")
            found[match.group(1)] = match.group(2)
    return found


def stage(folder):
    """Puts everything where the wheel has it."""
    package = os.path.join(folder, "millrace")
    home = os.path.join(package, "_home")
    skip = shutil.ignore_patterns("__pycache__", "*.c", "*.h")
    built = os.path.join(BUILD, "python")
    shutil.copytree(os.path.join(built, "millrace"), package, ignore=skip)
    for name in ("bin", "lib"):
        os.makedirs(os.path.join(home, name))
    shutil.copy2(os.path.join(BUILD, "bin", "millrace"), os.path.join(home, "bin"))
    shutil.copy2(os.path.join(BUILD, "lib", "libmillrace_trace.so"), os.path.join(home, "lib"))
    libraries = {}
    for path in (os.path.join(package, "_core.abi3.so"), os.path.join(home, "bin", "millrace")):
        libraries.update(needed(path))
    for name, path in libraries.items():
        shutil.copy2(os.path.realpath(path), os.path.join(home, "lib", name))
    shutil.copytree(os.path.join(ROOT, "workloads"), os.path.join(home, "share", "millrace", "workloads"))
    # `millrace trace --python` puts this folder on the path of programs that run without the package.
    traced = os.path.join(home, "share", "millrace", "python")
    shutil.copytree(os.path.join(built, "dropin"), os.path.join(traced, "dropin"), ignore=skip)
    shutil.copytree(os.path.join(built, "millrace", "trace"), os.path.join(traced, "millrace", "trace"), ignore=skip)
    shutil.copy2(os.path.join(built, "millrace", "__init__.py"), os.path.join(traced, "millrace"))


def objects(folder):
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as f:
                if f.read(4) == b"\x7fELF":
                    yield path


def platform_tag(folder):
    """manylinux_2_N_ARCH, N of the newest glibc symbol in use."""
    newest = 17
    for path in objects(folder):
        text = subprocess.run(["objdump", "-T", path], capture_output=True, text=True).stdout
        newest = max([newest] + [int(n) for n in re.findall(r"GLIBC_2\.(\d+)", text)])
    return f"manylinux_2_{newest}_{platform.machine()}"


def project():
    """The table [project] of pyproject.toml."""
    try:
        import tomllib
    except ImportError:  # Python 3.10
        from pip._vendor import tomli as tomllib
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as f:
        return tomllib.load(f)["project"]


def metadata_text():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        readme = f.read()
    about = project()
    fields = [
        ("Metadata-Version", "2.1"),
        ("Name", about["name"]),
        ("Version", version()),
        ("Summary", about["description"]),
        ("Author", ", ".join(author["name"] for author in about["authors"])),
        ("License", about["license"]["text"]),
        ("Keywords", ",".join(about["keywords"])),
        *(("Classifier", one) for one in about["classifiers"]),
        *(("Project-URL", f"{label}, {url}") for label, url in about.get("urls", {}).items()),
        ("Requires-Python", about["requires-python"]),
        ("Description-Content-Type", "text/markdown"),
    ]
    return "".join(f"{key}: {value}\n" for key, value in fields) + "\n" + readme


class Wheel:
    """A zip file with the list of its files that installers want."""

    def __init__(self, path):
        self.zip = zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, data, executable=False):
        info = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
        info.external_attr = (0o100755 if executable else 0o100644) << 16
        info.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(info, data)
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(data)}")

    def close(self, info):
        name = f"{info}/RECORD"
        self.add(name, ("\n".join(self.record) + f"\n{name},,\n").encode())
        self.zip.close()


def pack(folder, out):
    name = f"millrace-{version()}-{TAG_PYTHON}-{platform_tag(folder)}"
    info = f"millrace-{version()}.dist-info"
    path = os.path.join(out, name + ".whl")
    wheel = Wheel(path)
    for where, folders, names in os.walk(folder):
        folders.sort()
        for file in sorted(names):
            full = os.path.join(where, file)
            with open(full, "rb") as f:
                wheel.add(os.path.relpath(full, folder), f.read(), os.access(full, os.X_OK))
    tag = name.split("-", 2)[2]
    wheel.add(f"{info}/METADATA", metadata_text().encode())
    wheel.add(
        f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: millrace\nRoot-Is-Purelib: false\nTag: {tag}\n".encode()
    )
    wheel.add(f"{info}/entry_points.txt", b"[console_scripts]\nmillrace = millrace.__main__:main\n")
    with open(os.path.join(ROOT, "LICENSE"), "rb") as f:
        wheel.add(f"{info}/LICENSE", f.read())
    wheel.close(info)
    return os.path.basename(path)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    build()
    folder = os.path.join(BUILD, "stage")
    shutil.rmtree(folder, ignore_errors=True)
    stage(folder)
    for path in objects(folder):
        subprocess.run(["strip", "--strip-debug", path], check=False)
    return pack(folder, wheel_directory)


def build_sdist(sdist_directory, config_settings=None):
    name = f"millrace-{version()}"
    out = os.path.join(sdist_directory, name + ".tar.gz")
    run("git", "archive", "--format=tar.gz", f"--prefix={name}/", "-o", os.path.abspath(out), "HEAD")
    return os.path.basename(out)


if __name__ == "__main__":
    destination = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "build"))
    print(os.path.join(destination, build_wheel(destination)))
