"""Rows from a server that allows 40 requests a second to all its clients; two workers."""

import http.server
import subprocess
import sys
import threading
import time
import urllib.request


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lock, at = threading.Lock(), [0.0]

    def do_GET(self) -> None:
        with self.lock:
            self.at[0] = max(self.at[0] + 0.025, time.time())
            wait = self.at[0] - time.time()
        time.sleep(max(wait, 0))
        self.send_response(200)
        self.send_header("Content-Length", "20000")
        self.end_headers()
        self.wfile.write(b"x" * 20000)

    def log_message(self, *_: object) -> None:
        pass


if "serve" in sys.argv:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()

import torch  # noqa: E402
from case import answer, step, take  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

serving = subprocess.Popen([sys.executable, __file__, sys.argv[1], "serve"], stdout=subprocess.PIPE)
url = "http://127.0.0.1:%d/" % int(serving.stdout.readline())


class Rows(Dataset):
    def __len__(self) -> int:
        return 120

    def __getitem__(self, i: int) -> torch.Tensor:
        with urllib.request.urlopen(url + str(i)) as reply:
            reply.read()
        return torch.randn(64)


for batch in take(DataLoader(Rows(), batch_size=4, num_workers=2)):
    step(batch)
serving.kill()
answer("input-bound", ["network"])
