#!/usr/bin/env python3
"""Opens a page in chromium without a window and says what a user would not see: errors on the console and requests.

  browse_page.py PAGE [--width N] [--dark] [--no-js] [--shot FILE] [--eval EXPRESSION]

Talks to the browser through pipes (--remote-debugging-pipe), so that nothing but Python's own library is needed. Prints one
JSON object: {"errors": [...], "requests": [...], "height": N, "eval": ...}. A request is whatever is not the page itself
and not a data: URL."""
import argparse, base64, json, os, shutil, subprocess, sys, tempfile, threading, queue


class Browser:
    def __init__(self, js):
        self.folder = tempfile.mkdtemp(prefix="mr_browse_")
        to_r, self.to = os.pipe()
        self.back, back_w = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe", "--no-first-run",
                 "--disable-background-networking", "--disable-component-update", f"--user-data-dir={self.folder}"]

        def wire():  # the browser reads commands from 3 and answers on 4
            os.dup2(to_r, 13), os.dup2(back_w, 14)
            os.dup2(13, 3), os.dup2(14, 4)
        self.process = subprocess.Popen([shutil.which("chromium") or "chromium-browser", *flags], close_fds=False, preexec_fn=wire,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_r), os.close(back_w)
        self.next, self.answers, self.events = 0, {}, queue.Queue()
        self.fresh = threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        rest = b""
        while chunk := os.read(self.back, 1 << 20):
            *whole, rest = (rest + chunk).split(b"\0")
            for text in whole:
                message = json.loads(text)
                with self.fresh:
                    if "id" in message:
                        self.answers[message["id"]] = message
                        self.fresh.notify_all()
                    else:
                        self.events.put(message)

    def ask(self, method, session=None, **params):
        self.next += 1
        message = {"id": self.next, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        with self.fresh:
            if not self.fresh.wait_for(lambda: message["id"] in self.answers, 60):
                raise SystemExit(f"no answer to {method}")
        answer = self.answers.pop(message["id"])
        if "error" in answer:
            raise SystemExit(f"{method}: {answer['error']['message']}")
        return answer["result"]

    def wait_for(self, method, seen):
        while True:
            event = self.events.get(timeout=60)
            seen.append(event)
            if event["method"] == method:
                return

    def close(self):
        self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def text_of(event):
    p = event["params"]
    if event["method"] == "Runtime.exceptionThrown":
        return p["exceptionDetails"].get("exception", {}).get("description", p["exceptionDetails"]["text"])
    if event["method"] == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
        return p["entry"]["text"]
    if event["method"] == "Runtime.consoleAPICalled":
        return " ".join(str(a.get("value", "")) for a in p["args"])
    return None


def main():
    a = argparse.ArgumentParser()
    a.add_argument("page"), a.add_argument("--width", type=int, default=1280), a.add_argument("--dark", action="store_true")
    a.add_argument("--no-js", action="store_true"), a.add_argument("--shot"), a.add_argument("--eval"), a.add_argument("--clip")
    o = a.parse_args()
    url = "file://" + os.path.abspath(o.page)
    b = Browser(not o.no_js)
    try:
        target = b.ask("Target.createTarget", url="about:blank")["targetId"]
        s = b.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        seen = []
        for domain in ("Page", "Runtime", "Log", "Network"):
            b.ask(domain + ".enable", s)
        b.ask("Emulation.setDeviceMetricsOverride", s, width=o.width, height=900, deviceScaleFactor=1, mobile=o.width < 600)
        b.ask("Emulation.setEmulatedMedia", s, features=[{"name": "prefers-color-scheme", "value": "dark" if o.dark else "light"}])
        if o.no_js:
            b.ask("Emulation.setScriptExecutionDisabled", s, value=True)
        b.ask("Page.navigate", s, url=url)
        b.wait_for("Page.loadEventFired", seen)
        value = b.ask("Runtime.evaluate", s, expression=o.eval, returnByValue=True, awaitPromise=True) if o.eval else None
        size = b.ask("Page.getLayoutMetrics", s)["cssContentSize"]
        if o.shot:
            clip = dict(x=0, y=0, width=size["width"], height=size["height"], scale=1)
            if o.clip:
                clip.update(zip(("y", "height"), map(int, o.clip.split(","))))
            shot = b.ask("Page.captureScreenshot", s, captureBeyondViewport=True, clip=clip)
            with open(o.shot, "wb") as f:
                f.write(base64.b64decode(shot["data"]))
        while not b.events.empty():
            seen.append(b.events.get())
        requests = [e["params"]["request"]["url"] for e in seen if e["method"] == "Network.requestWillBeSent"]
        out = {"errors": [t for t in map(text_of, seen) if t], "requests": [r for r in requests if r != url and not r.startswith("data:")],
               "width": size["width"], "height": size["height"]}
        if value is not None:
            out["eval"] = value["result"].get("value", value.get("exceptionDetails", {}).get("text"))
            if "exceptionDetails" in value:
                out["errors"].append(str(value["exceptionDetails"]))
        print(json.dumps(out))
    finally:
        b.close()


sys.exit(main())
