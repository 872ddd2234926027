"""Lists what was skipped, one line per missing framework or reason, out of the JUnit files of ctest: skips.py FILE.xml ...

More than eight lines are an error: tests that nobody runs guard nothing. `skips.py --self-test` tries the grouping."""
import re
import sys
import xml.etree.ElementTree

LIMIT = 8
# The first that fits a reason names its line. Frameworks that make test-full installs from PyPI come first.
FRAMEWORKS = [
    ("JAX", r"\bjax\b|grain"),
    ("TensorFlow", r"tensorflow|keras"),
    ("PyTorch", r"torch|lightning|timm"),
    ("C++", r"c\+\+"),
    ("clang-format", r"clang-format"),
    ("MPI", r"\bmpi|mpirun"),
    ("UCX", r"\bucx"),
]


def reason_of(output):
    """What a test printed when it was skipped."""
    for line in output.splitlines():
        match = re.match(r"\s*(?:SKIP|skipped|skip)\S*\s*(.*)", line, re.IGNORECASE)
        if match:
            return match.group(1).strip()
    return "no reason given"


def lines_of(skipped):
    """(test, reason) pairs as lines, in the order in which their frameworks or reasons come up."""
    groups = {}
    for test, reason in skipped:
        name = next((n for n, pattern in FRAMEWORKS if re.search(pattern, reason, re.IGNORECASE)), reason)
        tests, reasons = groups.setdefault(name, ([], []))
        if test not in tests:
            tests.append(test)
        reasons.append(reason)
    return [f"{reasons[0]} ({', '.join(tests)})" for tests, reasons in groups.values()]


def skipped_in(path):
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        if case.find("skipped") is not None:
            yield case.get("name"), reason_of(case.findtext("system-out") or "")


def self_test():
    assert reason_of("a\nSKIP: no JAX: x\n") == "no JAX: x" and reason_of("skipped: y") == "y" and reason_of("") == "no reason given"
    two = [("a", "no JAX: x"), ("b", "No module named 'jax'"), ("c", "no disk"), ("c", "no disk")]
    assert lines_of(two) == ["no JAX: x (a, b)", "no disk (c)"], lines_of(two)


def main():
    self_test()
    if sys.argv[1:] == ["--self-test"]:
        return 0
    lines = lines_of([pair for path in sys.argv[1:] for pair in skipped_in(path)])
    print(f"skipped: {len(lines)} lines" if lines else "skipped: nothing")
    for line in lines:
        print("  " + line)
    if len(lines) > LIMIT:
        print(f"skipped: more than {LIMIT} lines are an error; scripts/setup test installs what make test needs")
        return 1
    return 0


sys.exit(main())
