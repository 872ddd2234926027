"""`millrace mcp`: the protocol line by line (answers, errors, calls in turn, cancelling, hostile arguments), that a tool answers what its
command prints, and that nothing runs without --allow-run; with MR_TEST_FULL=1 by the reference client (mcp from PyPI, in build/venv-mcp)."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

MILLRACE = os.environ["MILLRACE"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


SLOW = {  # minutes
    "settings": ["workload=unet3d_h100", "system=lassen", "dataset.num_files_train=448000", "train.epochs=50"],
    "policy": "nopfs,millrace",
    "sweep": ["nodes=8,16,32,64,128,256"],
}


class Server:
    def __init__(self, *words):
        self.p = subprocess.Popen([MILLRACE, "mcp", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.number = 0

    def send(self, text):
        self.p.stdin.write(text.encode() + b"\n")
        self.p.stdin.flush()

    def ask(self, method, **params):
        self.number += 1
        self.send(json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}))
        return self.number

    def answer(self):
        line = self.p.stdout.readline()
        assert line.endswith(b"\n"), self.p.stderr.read()
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return message

    def call(self, name, **arguments):
        n = self.ask("tools/call", name=name, arguments=arguments)
        got = self.answer()
        assert got["id"] == n, got
        return got

    def text(self, name, **arguments):
        got = self.call(name, **arguments)["result"]
        return got["content"][0]["text"], got["isError"]

    def code(self, text):
        self.send(text)
        return self.answer()["error"]["code"]

    def end(self):
        self.p.stdin.close()
        assert self.p.wait(30) == 0, self.p.stderr.read()
        assert self.p.stdout.read() == b""


def printed(*words):
    return subprocess.run([MILLRACE, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout


def protocol(s):
    s.ask("initialize", protocolVersion="2025-03-26", capabilities={}, clientInfo={"name": "test", "version": "1"})
    hello = s.answer()["result"]
    assert hello["protocolVersion"] == "2025-03-26" and hello["serverInfo"]["name"] == "millrace" and "tools" in hello["capabilities"]
    s.send('{"jsonrpc":"2.0","method":"notifications/initialized"}')
    s.ask("tools/list")
    tools = {t["name"]: t for t in s.answer()["result"]["tools"]}
    assert set(tools) == {"report", "explain", "compare", "check", "sim", "ls", "watch"}, tools.keys()
    assert all(t["annotations"]["readOnlyHint"] and t["inputSchema"]["additionalProperties"] is False for t in tools.values())
    s.ask("ping")
    assert s.answer()["result"] == {}
    s.ask("resources/list")
    assert s.answer()["error"]["code"] == -32601
    assert s.code("{nonsense") == -32700 and s.code("[]") == -32600 and s.code('{"id":1,"params":{}}') == -32600
    assert s.code('{"jsonrpc":"2.0","id":{},"method":"ping"}') == -32600
    s.send("")
    s.send('{"jsonrpc":"2.0","method":"notifications/other"}')
    s.send("x" * 5_000_000)
    assert s.answer()["error"]["code"] == -32600
    s.ask("ping")
    assert s.answer()["result"] == {}


def answers(s):
    assert s.text("report", path=["r/trace.mrt"]) == (printed("report", "r/trace.mrt"), False)
    whole, failed = s.text("report", path="r/trace.mrt", json=True)
    assert not failed and json.loads(whole) == json.loads(printed("report", "r/trace.mrt", "--json"))
    rule = json.loads(whole)["findings"][0]["id"] if json.loads(whole)["findings"] else "PF1"
    assert s.text("explain", path=["r/trace.mrt"], rule=rule)[0] == printed("report", "r/trace.mrt", "--explain", rule)
    assert "same work" in s.text("compare", sides=["r/trace.mrt", "r/trace.mrt"])[0]
    missed, failed = s.text("check", path=["r/trace.mrt"], limits=["wall_s > 1e9", "stall_pct <= 101"])
    assert "1 of 2 limits met" in missed and "1 of 2 limits missed" in missed and not failed, missed
    assert "verdict, where" in s.text("ls", folders=["."])[0]
    assert json.loads(s.text("watch", what="r/trace.mrt")[0])["ended"]
    assert "thesis-1" in s.text("sim", list=True)[0]
    gone, failed = s.text("report", path=["nosuch"])
    assert failed and "nosuch" in gone


def refusals(s):
    before = sorted(p.name for p in pathlib.Path(".").rglob("*"))
    for name, arguments in (
        ("report", {"path": ["--html=planted.html"]}),
        ("report", {"path": ["r/trace.mrt"], "html": "planted.html"}),
        ("report", {}),
        ("report", {"path": []}),
        ("report", {"path": [7]}),
        ("report", {"path": ["a\x00b"]}),
        ("report", {"path": ["r"], "rank": "0"}),
        ("ls", {"folders": ["."], "json": "yes"}),
        ("try", {"path": "r/trace.mrt"}),
        ("run", {"path": "w.yaml"}),
        ("sim", {"settings": ["-p"]}),
    ):
        got = s.call(name, **arguments)
        assert got["error"]["code"] == -32602, (name, arguments, got)
    # a value is one word behind its option, whatever is in it
    s.text("report", path=["r/trace.mrt"], steps="1 --html=planted.html; touch planted")
    assert sorted(p.name for p in pathlib.Path(".").rglob("*")) == before


def turns(s):
    """Calls are answered in their order; a cancelled one is not answered, nor one that waits; pings are, meanwhile."""
    slow = s.ask("tools/call", name="sim", arguments=SLOW)
    waits = s.ask("tools/call", name="report", arguments={"path": ["r/trace.mrt"]})
    last = s.ask("tools/call", name="ls", arguments={"folders": ["."]})
    ping = s.ask("ping")
    assert s.answer()["id"] == ping
    for n in (slow, waits):
        s.send(json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": n}}))
    begin = time.monotonic()
    got = s.answer()
    assert got["id"] == last and not got["result"]["isError"] and time.monotonic() - begin < 60, got


def ends():
    """At the end of the input what was asked is answered; a signal ends the server and its command."""
    lines = [{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "ls", "arguments": {"folders": ["."]}}} for n in (1, 2)]
    done = subprocess.run([MILLRACE, "mcp"], input="\n".join(map(json.dumps, lines)), stdout=subprocess.PIPE, text=True, check=True)
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == [1, 2]
    s = Server()
    s.ask("tools/call", name="sim", arguments=SLOW)
    time.sleep(0.3)
    s.p.send_signal(signal.SIGTERM)
    assert s.p.wait(60) == 130
    allowed = Server("--allow-run")
    allowed.ask("tools/list")
    tools = {t["name"]: t for t in allowed.answer()["result"]["tools"]}
    assert "write" not in tools["try"]["inputSchema"]["properties"] and not tools["try"]["annotations"]["readOnlyHint"]
    allowed.end()


def reference_client():
    venv = ROOT / "build" / "venv-mcp"
    python = venv / "bin" / "python3"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, stdout=subprocess.DEVNULL)
        if subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-input", "mcp"], check=False).returncode:
            print("not run: pip cannot install mcp")
            return
    code = """
import asyncio, json, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
async def main():
    async with stdio_client(StdioServerParameters(command=sys.argv[1], args=["mcp"])) as (r, w), ClientSession(r, w) as s:
        await s.initialize()
        assert {t.name for t in (await s.list_tools()).tools} >= {"report", "explain", "compare", "check", "sim", "ls"}
        a = (await s.call_tool("report", {"path": ["r/trace.mrt"]})).model_dump(by_alias=True)
        assert "VERDICT" in a["content"][0]["text"] and not a["isError"], a
        a = (await s.call_tool("compare", {"sides": ["r/trace.mrt", "r/trace.mrt"], "json": True})).model_dump(by_alias=True)
        assert json.loads(a["content"][0]["text"])["same_work"] is True
        a = (await s.call_tool("report", {"path": ["nosuch"]})).model_dump(by_alias=True)
        assert a["isError"]
        try:
            await s.call_tool("try", {"path": "r/trace.mrt"})
            raise SystemExit("try was run")
        except Exception as e:
            assert "allow-run" in str(e), e
asyncio.run(main())
"""
    subprocess.run([python, "-c", code, MILLRACE], check=True, timeout=120)


def main():
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        pathlib.Path("w.yaml").write_text(
            "workflow: {train: true}\n"
            "dataset: {format: npz, num_files_train: 8, record_length_bytes: 2000, data_folder: d}\n"
            "reader: {batch_size: 1, read_threads: 1}\ntrain: {epochs: 1, computation_time: 0.005}\n"
        )
        for words in (("gen", "d", "--workload", "w.yaml"), ("run", "w.yaml", "--no-ceiling", "--out", "r")):
            subprocess.run([MILLRACE, "-q", *words], check=True, stdout=subprocess.DEVNULL)
        s = Server()
        protocol(s)
        answers(s)
        refusals(s)
        turns(s)
        s.end()
        ends()
        if os.environ.get("MR_TEST_FULL"):
            reference_client()
    print("mcp: ok")


main()
