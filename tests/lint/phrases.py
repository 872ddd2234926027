"""Phrases that make a reader stop, in lines added since the last landed commit; see test_phrases.sh."""
import os
import re
import subprocess
import sys

# (what, better wording). A line of code counts only where it has a comment or a string: names are test_names.sh's.
PHRASES = [
    (r"\b(is|are|was|were|be|been) told\b", "is reported, is logged, is passed, is distinguished"),
    (r"\b(is|are|was|were|be) said (once|so|why|here|there|which|in|by)\b", "is reported, is logged, is written"),
    (r"\btells? (the story|of|about|that|what|how|which|who|whether|where|why|it|its|itself|them|nobody|us|you)\b",
     "reports, prints, records, says (of a document)"),
    (r"\b(nobody|no one|who(ever)?|somebody|everybody) (knows|asks|waits|sees|looks|tells|says|reads|finds|is asked)\b",
     "name the subject: the caller, the reader thread, the tracer"),
    (r"\b(finds|found|knows|asks|feels|tells) itself\b", "is tuned automatically, is determined"),
    (r"\b(it|that|which|they|thread|rank|node|process|caller|loader|program) gives? up\b", "fails, stops, times out after N s"),
    (r"\ball that (it|they|he) (gives?|has|have)\b", "delivers at most, its only"),
    (r"\bto who (asks|wants|needs)\b", "to the caller, for the command"),
    (r"\bcounts before\b", "overrides"),
    (r"\bwho reads what when\b", "prefetching policy"),
    (r"\bas (it|they) (likes?|wants?|pleases?)\b", "name the condition"),
    (r"\blast words\b", "closing message"),
    (r"\bbehind (its|their|the training's) back\b", "in the background, asynchronously"),
    (r"\bwhat (was|is|has been) (read|written|sent|saved|lost|kept) (is|are|was|were|has|have)\b",
     "a noun: the bytes read, the saved files"),
    (r"\bcame short\b|\bcomes short\b", "was short, needs a retry"),
    (r"\b1 (threads|times|files|ranks|nodes|bytes|samples|events|steps|seconds)\b(?! ?\+)", "plural forms from one helper"),
    (r"\bhope(s|d)? (that|for|to)\b", "name the condition"),
    (r"\bspeaks\b(?! \w+'s protocol)", "reports, is the reporter, uses the protocol"),
]
RULES = [(re.compile(p, re.IGNORECASE), better) for p, better in PHRASES]
CODE = (".c", ".h", ".py", ".sh", ".cmake", ".yaml", ".in")
SKIPPED = ("tests/lint/phrases.py", "tests/lint/test_phrases.sh", "tests/fuzz/corpus/", "tests/golden/")


def git(root, *args):
    done = subprocess.run(["git", "-C", root, "-c", "core.quotePath=off", *args], capture_output=True, text=True,
                          errors="replace")
    return done.stdout if done.returncode == 0 else None


def find_base(root):
    """The commit to compare with, and why; None: there is none."""
    named = os.environ.get("MR_PHRASES_BASE")
    if named:
        return named, "MR_PHRASES_BASE"
    head = git(root, "rev-parse", "HEAD")
    bases = []
    for ref in ("origin/main", "main"):
        base = git(root, "merge-base", "HEAD", ref)
        if base and base != head:
            bases.append((int(git(root, "rev-list", "--count", f"{base.strip()}..HEAD")), base.strip(), ref))
    if bases:
        return min(bases)[1], f"the merge base with {min(bases)[2]}"
    if git(root, "rev-parse", "--verify", "-q", "HEAD~1"):
        return "HEAD~1", "the commit before HEAD"
    return None


def added_lines(root, base, removed):
    """(file, line number, text) of what the working tree has beyond the base; texts that it lacks go to `removed`."""
    name, number = None, 0
    for line in (git(root, "diff", "--no-color", "--no-ext-diff", "-M", "-U0", base, "--") or "").split("\n"):
        hunk = re.match(r"@@ -\S+ \+(\d+)", line)
        if line.startswith("+++ "):
            name = line[6:] if line.startswith("+++ b/") else None
        elif hunk:
            number = int(hunk.group(1))
        elif line.startswith("+") and name:
            yield name, number, line[1:]
            number += 1
        elif line.startswith("-") and not line.startswith("--- "):
            removed.append(line[1:])
    for new in (git(root, "ls-files", "-z", "--others", "--exclude-standard") or "").split("\0"):
        if new and os.path.isfile(os.path.join(root, new)):
            with open(os.path.join(root, new), encoding="utf-8", errors="replace") as f:
                yield from ((new, i, text) for i, text in enumerate(f.read().split("\n"), 1))


def prose_of(name, line):
    """The part of a line that people read: all of a page, comments and strings of code."""
    if name.endswith(".md"):
        return re.sub(r"`[^`]*`", "", line)
    if not name.endswith(CODE) and "." in os.path.basename(name):
        return ""
    if re.match(r"\s*(/?\*|#(?!\s*(include|define|if|endif|else|undef|pragma))|//)", line):
        return line
    parts = re.findall(r"\"(?:[^\"\\]|\\.)*\"|/\*.*|(?<=\s)//.*|(?<=\s)#\s.*", line)
    if name.endswith(".py") and not parts and not re.search(r"[=()\[\]{}:]", line):
        return line  # inside a docstring
    return " ".join(parts)


def flat(text):
    return " ".join(re.sub(r"^\s*(/?\*+|#+|//)|\*/", " ", text).split())


def is_moved(line, hit, old):
    """Whether the phrase stood there before, with the same words around it: moved or wrapped anew."""
    before, after = flat(line[:hit.start()]).split()[-2:], flat(line[hit.end():]).split()[:2]
    return "".join(before + flat(hit.group(0)).split() + after) in old


def check(root):
    found = find_base(root)
    if not found:
        print("skipped: no git history to compare with")
        return 77
    lines, faults, removed = 0, [], []
    added = list(added_lines(root, found[0], removed))
    old = "".join(flat(text) for text in removed).replace(" ", "")
    for name, number, text in added:
        if name.startswith(SKIPPED):
            continue
        lines += 1
        prose = prose_of(name, text)
        for rule, better in RULES:
            hit = rule.search(prose)
            if hit and not is_moved(prose, hit, old):
                faults.append(f"{name}:{number}: '{hit.group(0)}': write instead: {better}")
    print("\n".join(faults + [f"phrases: {lines} added lines against {found[1]}, {len(faults)} to reword"]))
    return 1 if faults else 0


def self_test():
    cases = [("a.c", "/* It is told once. */", True), ("a.c", 'puts("nobody knows why");', True), ("a.c", "int told_it;", False),
             ("a.md", "The split finds itself.", True), ("a.md", "The split is tuned automatically.", False),
             ("a.py", "    # tells what it did", True), ("a.py", "tells = what(1)", False), ("a.md", "`is told`", False),
             ("a.c", '    .doc = "Who reads what when",', True), ("a.h", " * A rank that gives up ends all.", True),
             ("a.c", '"1 threads"', True), ("a.c", '"%d threads"', False), ("a.bin", "is told", False)]
    wrong = [(name, text) for name, text, want in cases if any(r.search(prose_of(name, text)) for r, _ in RULES) != want]
    if wrong:
        print(f"phrases: its own cases fail: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(self_test() if sys.argv[1:] == ["--self-test"] else check(sys.argv[1] if len(sys.argv) > 1 else "."))
