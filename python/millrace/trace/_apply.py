"""Changes of arguments as a unified diff of the script that makes the call: `millrace try --apply`, and written with
--write. A program of its own, which any Python from 3.8 on runs without this package:

    python3 _apply.py [--write] < {"changes": [{"file": "train.py", "line": 41, "set": {"num_workers": 4}}]}

The call is the one that begins at the line, or that the line is a part of. An argument that it has gets another value,
a new one comes behind the last. Nothing else of the file changes, comments and line ends included."""

import ast
import difflib
import json
import os
import shutil
import sys
import tempfile
from typing import Any, Dict, List, Optional, Tuple


class Refused(Exception):
    """Why a change cannot be made, for people."""


class Source:
    """The bytes of a file, and where its lines begin: ast counts columns in UTF-8."""

    def __init__(self, path: str) -> None:
        self.path = path
        with open(path, "rb") as f:
            self.data = f.read()
        try:
            self.text = self.data.decode("utf-8")
            self.tree = ast.parse(self.text)
        except (UnicodeDecodeError, SyntaxError) as error:
            raise Refused("'%s' cannot be read as Python: %s" % (path, error)) from error
        self.begins = [0]
        for line in self.data.splitlines(keepends=True):
            self.begins.append(self.begins[-1] + len(line))

    def at(self, line: int, column: int) -> int:
        """Offset of a place that ast gives."""
        return self.begins[line - 1] + column

    def begin(self, node: Any) -> int:
        return self.at(node.lineno, node.col_offset)

    def end(self, node: Any) -> int:
        return self.at(node.end_lineno, node.end_col_offset)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _call_at(source: Source, line: int) -> ast.Call:
    """The call at a line: of several the one that is called a loader, then the one that begins there."""
    found = [n for n in ast.walk(source.tree) if isinstance(n, ast.Call) and n.lineno <= line <= (n.end_lineno or 0)]
    loaders = [c for c in found if "loader" in _name(c).lower()]
    for some in (loaders, [c for c in found if c.lineno == line and c.keywords]):
        here = [c for c in some if c.lineno == line] or some
        if len(here) == 1:
            return here[0]
        if here:
            raise Refused("%s:%d makes several calls: change it by hand" % (source.path, line))
    raise Refused(
        "there is no call of a loader at %s:%d: was the file changed since it was traced?" % (source.path, line)
    )


def _insertion(source: Source, call: ast.Call, key: str, value: str) -> Tuple[int, int, bytes]:
    """A new argument behind the last one, on a line of its own where they are."""
    arguments: List[Any] = [*call.args, *call.keywords]
    last = max(arguments, key=source.end, default=None)
    if last is None:
        end = source.end(call) - 1
        return end, end, ("%s=%s" % (key, value)).encode()
    at = source.end(last)
    first = source.data[source.begins[last.lineno - 1] :]
    indent = first[: len(first) - len(first.lstrip(b" \t"))]
    own_line = last.lineno != call.lineno and source.begin(last) == source.begins[last.lineno - 1] + len(indent)
    newline = b"\r\n" if b"\r\n" in source.data else b"\n"
    gap = b"," + newline + indent if own_line else b", "
    return at, at, gap + ("%s=%s" % (key, value)).encode()


def _edits(source: Source, line: int, new: Dict[str, Any]) -> List[Tuple[int, int, bytes]]:
    call = _call_at(source, line)
    given = {k.arg: k.value for k in call.keywords}
    edits: List[Tuple[int, int, bytes]] = []
    inserted: Optional[Tuple[int, int, bytes]] = None
    for key, value in new.items():
        if key in given:
            node = given[key]
            edits.append((source.begin(node), source.end(node), repr(value).encode()))
            continue
        if None in given:
            raise Refused("%s:%d takes **, which may set %s: change it there" % (source.path, line, key))
        more = _insertion(source, call, key, repr(value))
        inserted = more if inserted is None else (inserted[0], inserted[1], inserted[2] + more[2])
    return edits + ([inserted] if inserted else [])


def changed(path: str, changes: List[Dict[str, Any]]) -> Tuple[Source, bytes]:
    """The file, and its bytes with all changes of it made."""
    source = Source(path)
    edits = [e for c in changes for e in _edits(source, c["line"], c["set"])]
    data = source.data
    for begin, end, text in sorted(edits, key=lambda e: e[0], reverse=True):
        data = data[:begin] + text + data[end:]
    ast.parse(data.decode("utf-8"))
    return source, data


def _diff(source: Source, data: bytes) -> str:
    before, after = source.text.splitlines(keepends=True), data.decode("utf-8").splitlines(keepends=True)
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
                   for line in difflib.unified_diff(before, after, source.path, source.path))  # fmt: skip


def _write(source: Source, data: bytes) -> None:
    """In place of the file, with its mode; a link stays one."""
    path = os.path.realpath(source.path)
    with open(path, "rb") as f:
        if f.read() != source.data:
            raise Refused("'%s' changed meanwhile" % source.path)
    handle, name = tempfile.mkstemp(prefix=os.path.basename(path) + ".", dir=os.path.dirname(path))
    try:
        with os.fdopen(handle, "wb") as f:
            f.write(data)
        shutil.copymode(path, name)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def main(words: List[str]) -> int:
    """The exit status; a refusal goes to standard error."""
    changes: Dict[str, List[Dict[str, Any]]] = {}
    for change in json.load(sys.stdin)["changes"]:
        changes.setdefault(change["file"], []).append(change)
    try:
        made = [changed(path, of) for path, of in changes.items()]
        if "--write" in words:
            for source, data in made:
                _write(source, data)
    except (Refused, OSError) as error:
        sys.stderr.write("%s\n" % error)
        return 1
    sys.stdout.write("".join(_diff(source, data) for source, data in made))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
