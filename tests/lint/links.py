"""Checks links in a tree of files; see test_links.sh. Usage: links.py [ROOT]"""
import glob
import os
import re
import subprocess
import sys

LINK = re.compile(r"!?\[[^\]\n]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
MENTION = re.compile(r"(?<![\w.-])(?:(?:\.\./)*|/|\$[{\w}]*/)doc/([\w*./-]*\.md)\b(#[\w-]+)?")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
FENCE = re.compile(r"^\s*(```|~~~)")


def list_files(root):
    """Files of the tree: tracked and new ones, without what git ignores; all files where there is no git."""
    command = ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    except (OSError, subprocess.CalledProcessError):
        names = [os.path.relpath(os.path.join(folder, f), root) for folder, _, files in os.walk(root) for f in files]
        names = [n for n in names if n.split(os.sep)[0] not in ("build", ".git")]
    return sorted({n for n in names if n and os.path.isfile(os.path.join(root, n))})


def read(root, name):
    try:
        with open(os.path.join(root, name), encoding="utf-8") as f:
            return f.read()
    except UnicodeDecodeError:
        return ""


def without_code(text):
    """The lines of a Markdown text with fenced blocks and code spans made empty, so that line numbers stay."""
    inside, lines = False, []
    for line in text.split("\n"):
        fence = bool(FENCE.match(line))
        lines.append("" if inside or fence else re.sub(r"`[^`]*`", lambda m: "`" * len(m.group(0)), line))
        inside ^= fence
    return lines


def anchors_of(text):
    """Anchors as GitHub and GitLab make them: lower case, no punctuation, hyphens for blanks, -1 behind a second one."""
    found, seen, inside = set(re.findall(r"<a\s+(?:id|name)=\"([^\"]+)\"", text)), {}, False
    for line in text.split("\n"):
        inside ^= bool(FENCE.match(line))
        heading = None if inside else HEADING.match(line)
        if heading:
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1)).lower()
            slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
            found.add(slug if slug not in seen else f"{slug}-{seen[slug]}")
            seen[slug] = seen.get(slug, 0) + 1
    return found


class Checker:
    def __init__(self, root):
        self.root, self.files = root, list_files(root)
        self.links = self.mentions = 0
        self.faults, self.anchors = [], {}

    def has_anchor(self, page, anchor):
        if page not in self.anchors:
            self.anchors[page] = anchors_of(read(self.root, page))
        return anchor in self.anchors[page]

    def check_link(self, name, number, target):
        if re.match(r"[a-z][a-z0-9+.-]*:", target):
            return
        self.links += 1
        path, _, anchor = target.partition("#")
        page = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
        if page.startswith("..") or not os.path.exists(os.path.join(self.root, page)):
            self.faults.append(f"{name}:{number}: link to '{target}': there is no {page}")
        elif anchor and page.endswith(".md") and not self.has_anchor(page, anchor):
            self.faults.append(f"{name}:{number}: link to '{target}': {page} has no heading for '#{anchor}'")

    def check_mention(self, name, number, path, anchor):
        self.mentions += 1
        page = "doc/" + path
        if "*" in path and glob.glob(os.path.join(self.root, page)):
            return
        if not os.path.isfile(os.path.join(self.root, page)):
            same = [f for f in self.files if f.startswith("doc/") and os.path.basename(f) == os.path.basename(path)]
            hint = f"; {same[0]} is meant?" if same else ""
            self.faults.append(f"{name}:{number}: there is no page {page}{hint}")
        elif anchor and not self.has_anchor(page, anchor[1:]):
            self.faults.append(f"{name}:{number}: {page} has no heading for '{anchor}'")

    def check_file(self, name):
        text = read(self.root, name)
        if name.endswith(".md"):
            for number, line in enumerate(without_code(text), 1):
                for m in LINK.finditer(line):
                    self.check_link(name, number, m.group(1))
                bare = re.search(r"^\s*\[[^\]]+\]:\s*(\S+)", line)
                if bare:
                    self.check_link(name, number, bare.group(1))
        for number, line in enumerate(text.split("\n"), 1):
            # a link's target is checked above, relative to its file
            for m in MENTION.finditer(LINK.sub(lambda k: k.group(0).split("](")[0], line) if name.endswith(".md") else line):
                self.check_mention(name, number, m.group(1), m.group(2))

    def check_index(self):
        listed = {os.path.normpath(os.path.join("doc", m.group(1).partition("#")[0]))
                  for m in LINK.finditer(read(self.root, "doc/README.md"))}
        for f in self.files:
            if f.startswith("doc/") and f.endswith(".md") and f != "doc/README.md" and f not in listed:
                self.faults.append(f"doc/README.md: {f} is not in the index")


def main():
    check = Checker(sys.argv[1] if len(sys.argv) > 1 else ".")
    for name in check.files:
        if name != "tests/lint/links.py" and not name.startswith("tests/fuzz/corpus/"):
            check.check_file(name)
    check.check_index()
    print("\n".join(check.faults + [f"links: {check.links} links, {check.mentions} mentions of pages"]))
    return 1 if check.faults or not check.links or not check.mentions else 0


if __name__ == "__main__":
    sys.exit(main())
