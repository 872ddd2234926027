"""`millrace try --apply`: the diff changes the arguments of the call at a line and nothing else, or says why it cannot."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
APPLY = os.path.join(HERE, "..", "..", "python", "millrace", "trace", "_apply.py")

# script, line, settings, script afterwards
MADE = [
    ("d = DataLoader(x, num_workers=1)\n", 1, {"num_workers": 4}, "d = DataLoader(x, num_workers=4)\n"),
    ("d = DataLoader(x)\n", 1, {"num_workers": 4, "pin_memory": True}, "d = DataLoader(x, num_workers=4, pin_memory=True)\n"),
    (
        "d = torch.utils.data.DataLoader(\n    x,\n    batch_size=8,  # of a GPU\n    num_workers=args.workers,\n)\n",
        1,
        {"num_workers": 4, "persistent_workers": True},
        "d = torch.utils.data.DataLoader(\n    x,\n    batch_size=8,  # of a GPU\n    num_workers=4,\n    persistent_workers=True,\n)\n",
    ),
    ("é = 'ü'; d = DataLoader(x, 8, num_workers=0) # ü\n", 1, {"num_workers": 2}, "é = 'ü'; d = DataLoader(x, 8, num_workers=2) # ü\n"),
    ("d = DataLoader(x,\r\n               num_workers=1)\r\nprint()\r\n", 2, {"num_workers": 2, "pin_memory": True},
     "d = DataLoader(x,\r\n               num_workers=2,\r\n               pin_memory=True)\r\nprint()\r\n"),
    ("a = f(DataLoader(Rows(n=3), num_workers=0), n=4)", 1, {"num_workers": 1}, "a = f(DataLoader(Rows(n=3), num_workers=1), n=4)"),
    ("d = MyLoader()\n", 1, {"num_workers": 1}, "d = MyLoader(num_workers=1)\n"),
]  # fmt: skip
# script, line, settings, a part of the message
REFUSED = [
    ("d = DataLoader(x, **more)\n", 1, {"num_workers": 4}, "takes **"),
    ("d = 1\n", 1, {"num_workers": 4}, "there is no call"),
    ("a, b = DataLoader(x), DataLoader(y)\n", 1, {"num_workers": 4}, "several calls"),
    ("d = DataLoader(x\n", 1, {"num_workers": 4}, "cannot be read as Python"),
]


def apply(path, line, new, *words):
    request = json.dumps({"changes": [{"file": path, "line": line, "set": new}]})
    return subprocess.run([sys.executable, "-I", APPLY, *words], input=request.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def main():
    with tempfile.TemporaryDirectory() as folder:
        path, link = os.path.join(folder, "train.py"), os.path.join(folder, "link.py")
        os.symlink(path, link)
        for text, line, new, after in MADE:
            with open(path, "wb") as f:
                f.write(text.encode())
            os.chmod(path, 0o750)
            done = apply(path, line, new)
            assert done.returncode == 0 and done.stdout.startswith(b"--- " + path.encode()), (text, done)
            assert open(path, "rb").read() == text.encode(), "only --write writes"
            copy = os.path.join(folder, "copy.py")
            with open(copy, "wb") as f:
                f.write(text.encode())
            subprocess.run(["patch", "--binary", "-s", copy], input=done.stdout, check=True)
            assert open(copy, "rb").read() == after.encode(), (after, done.stdout.decode())
            done = apply(link, line, new, "--write")
            assert done.returncode == 0 and open(path, "rb").read() == after.encode(), (after, open(path, "rb").read())
            assert os.path.islink(link) and os.stat(path).st_mode & 0o777 == 0o750
        for text, line, new, why in REFUSED:
            with open(path, "wb") as f:
                f.write(text.encode())
            done = apply(path, line, new, "--write")
            assert done.returncode == 1 and why in done.stderr.decode() and not done.stdout, (text, done)
            assert open(path, "rb").read() == text.encode()
        assert sorted(os.listdir(folder)) == ["copy.py", "link.py", "train.py"], os.listdir(folder)


main()
