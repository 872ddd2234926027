#!/usr/bin/env python3
"""Checks a page: tags are balanced, every SVG is well-formed XML with a title, ids are unique, nothing is loaded, nothing but our
script can run, it is below 2 MB. With a second argument, a JSON report, every figure that names its place there must be the same
number; and the JSON's findings must be on the page.

  check_page.py PAGE [REPORT.json]"""
import base64, hashlib, html.parser, json, math, re, sys
import xml.etree.ElementTree as ET

VOID = {"meta", "link", "br", "img", "input", "hr"}


class Reader(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.ids, self.wrong, self.figures, self.findings, self.scripts = [], set(), [], {}, [], 0
        self.verdict = None

    def handle_startendtag(self, tag, attrs):
        self.look(tag, attrs)

    def handle_starttag(self, tag, attrs):
        self.look(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()} closes nothing")

    def look(self, tag, attrs):
        a = dict(attrs)
        self.scripts += tag == "script"
        if tag in ("iframe", "object", "embed", "form", "img", "base"):
            self.wrong.append(f"<{tag}> has no place on a page")
        for name, value in attrs:
            if name.startswith("on"):
                self.wrong.append(f"<{tag} {name}=...> is a script")
            if name in ("src", "href", "xlink:href", "action", "srcset") and not (value or "").startswith(("#", "data:")):
                self.wrong.append(f"<{tag} {name}={value!r}> loads something")
        if "id" in a:
            if a["id"] in self.ids:
                self.wrong.append(f"id {a['id']} twice")
            self.ids.add(a["id"])
        if "data-key" in a:
            self.figures[a["data-key"]] = float(a["value"]) if "value" in a else None
        if "data-id" in a:
            self.findings.append(a["data-id"])
        if a.get("id") == "verdict":
            self.verdict = a.get("data-class")


def look_up(report, path):
    for part in path.split("."):
        if not isinstance(report, dict) or part not in report:
            return "missing"
        report = report[part]
    return report


def compare(r, report, wrong):
    same = 0
    for key, shown in sorted(r.figures.items()):
        told = look_up(report, key)
        if told == "missing":
            continue
        if (told is None) != (shown is None) or (told is not None and not math.isclose(told, shown, rel_tol=1e-9, abs_tol=1e-9)):
            wrong.append(f"{key}: {shown} on the page, {told} in the JSON")
        same += 1
    if same < 5:
        wrong.append(f"only {same} figures of the page are in the JSON")
    if [f["id"] for f in report.get("findings", [])][:40] != r.findings:
        wrong.append(f"findings: {r.findings} on the page, others in the JSON")
    if report["verdict"]["class"] != r.verdict:
        wrong.append(f"verdict: {r.verdict} on the page, {report['verdict']['class']} in the JSON")
    return same


def main():
    raw = open(sys.argv[1], "rb").read()
    text = raw.decode("utf-8")
    r = Reader()
    r.feed(text)
    r.close()
    wrong = r.wrong
    if r.open:
        wrong.append(f"not closed: {r.open}")
    if len(raw) >= 2 << 20:
        wrong.append(f"{len(raw)} bytes")
    if r.scripts != 1:
        wrong.append(f"{r.scripts} scripts")
    script = re.search(r"<script>(.*)</script>", text, re.S).group(1)
    if len(script) > 15 << 10:
        wrong.append(f"the script has {len(script)} bytes")
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    if f"'sha256-{digest}'" not in policy or "default-src 'none'" not in policy:
        wrong.append(f"policy: {policy}, script is sha256-{digest}")
    if re.search(r"[\x00-\x08\x0b-\x1f\u202a-\u202e\u2066-\u2069]", text):
        wrong.append("control characters")
    drawings, depth, begin = 0, 0, 0
    body = text[:text.index("<script>")]
    for m in re.finditer(r"<svg|</svg>", body):
        depth += 1 if m.group() == "<svg" else -1
        if depth == 1 and m.group() == "<svg":
            begin = m.start()
        if depth == 0:
            drawing = ET.fromstring(body[begin:m.end()])
            drawings += 1
            if drawing.get("aria-hidden") != "true" and (drawing.find("{*}title") is None or drawing.get("role") != "img"):
                wrong.append(f"a drawing without a title: {body[begin:begin + 90]}")
    same = compare(r, json.load(open(sys.argv[2])), wrong) if len(sys.argv) > 2 else 0
    for w in wrong[:20]:
        print(f"{sys.argv[1]}: {w}")
    print(f"{len(raw)} bytes, {drawings} drawings, {len(r.figures)} figures, {same} compared")
    return bool(wrong)


sys.exit(main())
