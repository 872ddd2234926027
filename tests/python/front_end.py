"""What the tests of the front ends share: the built package on the path (skipped where it was not built), temporary data sets made
by the built program, and a runner."""
import os
import shutil
import subprocess
import sys
import tempfile
import traceback

BINARY = os.environ.get("MR_BINARY_DIR", os.path.join(os.path.dirname(__file__), "..", "..", "build"))
MILLRACE = os.environ.get("MILLRACE", os.path.join(BINARY, "bin", "millrace"))
sys.path.insert(0, os.path.join(BINARY, "python"))


def skip(reason):
    print(f"SKIP: {reason}")
    sys.exit(77)


def prepare_sanitizer():
    """A library built with ASan wants it loaded first; one built with TSan cannot be loaded into an interpreter without."""
    path = os.path.join(BINARY, "lib", "libmillrace.so")
    if not os.path.exists(path) or not os.path.exists(os.path.join(BINARY, "python", "millrace", "_core.abi3.so")):
        skip("the extension was not built (no Python headers, or a build without the shared library)")
    with open(path, "rb") as f:
        library = f.read()
    if b"libtsan.so" in library:
        skip("the library is built with ThreadSanitizer")
    if b"libasan.so" not in library or "libasan" in os.environ.get("LD_PRELOAD", ""):
        return
    if any(name in os.path.basename(sys.argv[0]) for name in ("torch", "jax", "tensorflow")):
        skip("frameworks are not run with AddressSanitizer; the same code runs in the NumPy test")
    asan = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    os.environ.update(LD_PRELOAD=asan, ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1")
    os.execv(sys.executable, [sys.executable] + sys.argv)


prepare_sanitizer()

folder = tempfile.mkdtemp(prefix="millrace-front-")


def gen(name, *options):
    """A data set of `millrace gen`; returns its folder of training files."""
    path = os.path.join(folder, name)
    subprocess.run([MILLRACE, "-q", "gen", path, *options], check=True, stdout=subprocess.DEVNULL)
    return os.path.join(path, "train")


def plain_pictures(name, *options):
    """A folder of class folders with pictures and no manifest."""
    root = gen(name, "--format", "jpeg", *options)
    os.unlink(os.path.join(root, "manifest.mrm"))
    return root


def raises(kind, text, call, *args, **kwargs):
    """The call raises this very kind of exception with `text` in its message."""
    try:
        call(*args, **kwargs)
    except kind as e:
        assert text in str(e), f"'{text}' is not in: {e}"
        return e
    raise AssertionError(f"{kind.__name__} was not raised")


def run(tests):
    failed = 0
    try:
        for test in tests:
            try:
                test()
                print(f"ok {test.__name__}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED {test.__name__}", flush=True)
                traceback.print_exc()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failed else 0)
