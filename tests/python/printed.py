"""What a report prints to be run or pasted can be: commands whole, shell and Python that parse."""
import os
import shlex
import subprocess
import tempfile

MILLRACE = os.environ["MILLRACE"]
tried: set[str] = set()


def parses(text: str, kind: str, name: str) -> None:
    """Lines for a shell, or for Python."""
    if kind == "shell":
        done = subprocess.run(["bash", "-n", "-c", text], stderr=subprocess.PIPE)
        assert not done.returncode, (name, text, done.stderr)
    elif kind in ("pytorch", "tf_data"):
        compile(text, name, "exec")


def runs(command: str, name: str, program: list[str]) -> None:
    """The command is one of ours, and takes its words; `program`: what was traced, which it repeats as a whole."""
    words = shlex.split(command)
    assert words[0] == "millrace", (name, command)
    if "--" in words:
        at = words.index("--")
        assert words[at + 1 :] == program, (name, command, program)
        words = [*words[: at + 1], "true"]
    if str(words) in tried:
        return
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([MILLRACE, *words[1:]], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert not done.returncode, (name, command, done.stderr)
    tried.add(str(words))


def check(report: dict, program: list[str]) -> None:
    """Every finding of the report of a traced program."""
    for f in report["findings"]:
        assert f["fix"], f
        for kind, text in f["snippets"].items():
            parses(text, kind, f["id"])
        if f["command"]:
            runs(f["command"], f["id"], program)
