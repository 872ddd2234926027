#!/usr/bin/env python3
"""A small S3 server for tests: everything in memory, signatures checked by code of its own, faults on request.

    s3_server.py --port-file FILE [--key K --secret S] [--token T] [--region R] [--cert FILE] [--clock-offset SECONDS]
                 [--readonly-prefix PREFIX] [--store FILE]

`--store` keeps the objects in a file across a restart (it is written at every change), so that a killed server comes back
with what it had. Buckets are made by the first PUT of their name. The bucket `million` lists 1,000,000 keys.

Administration, unsigned: PUT /_faults takes a JSON list of rules {kind, method, match, nth, every, probability, seed, limit,
seconds}; GET /_stats counts requests and body bytes; PUT /_reset clears both; GET /_uploads lists multipart uploads, GET
/_keys all objects; PUT /_replace changes every object but manifests.

Kinds: 500, 503, slowdown, 429, timeout408, reset (nothing is answered), cut (half of the body), short (a shorter range), slow,
wrong_etag, redirect, expired, lost (done, but not answered), error200 (a good status with an error in it), garbage."""
import argparse
import fnmatch
import hashlib
import hmac
import json
import os
import pickle
import random
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.parse
import xml.sax.saxutils as sax
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
PAGE = 1000


class State:
    """Objects, uploads, faults and counts, under one lock."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.lock = args, threading.RLock()
        self.buckets: dict[str, dict[str, tuple[bytes, str, float]]] = {}
        self.uploads: dict[str, tuple[str, str, dict[int, tuple[bytes, str]], float]] = {}
        self.faults: list[dict[str, Any]] = []
        self.stats: dict[str, int] = {}
        self.serial = 0
        if args.store and os.path.exists(args.store):
            with open(args.store, "rb") as f:
                self.buckets, self.uploads, self.serial = pickle.load(f)

    def save(self) -> None:
        """Writes everything to the file, where one was named."""
        if self.args.store:
            with open(self.args.store + ".tmp", "wb") as f:
                pickle.dump((self.buckets, self.uploads, self.serial), f)
            os.rename(self.args.store + ".tmp", self.args.store)

    def count(self, name: str, by: int = 1) -> None:
        """Adds to a figure of /_stats."""
        with self.lock:
            self.stats[name] = self.stats.get(name, 0) + by

    def fault(self, method: str, path: str) -> dict[str, Any] | None:
        """The rule that spoils this request, if any does."""
        with self.lock:
            for rule in self.faults:
                if rule.get("method", method) != method or not fnmatch.fnmatch(path, rule.get("match", "*")):
                    continue
                rule["seen"] = rule.get("seen", 0) + 1
                if rule.get("done", 0) >= rule.get("limit", 1 << 60):
                    continue
                if "random" not in rule:
                    rule["random"] = random.Random(rule.get("seed", 1))
                hit = (rule["seen"] == rule["nth"] if "nth" in rule else rule["seen"] % rule["every"] == 0 if "every" in rule
                       else rule["random"].random() < rule.get("probability", 1.0))
                if hit:
                    rule["done"] = rule.get("done", 0) + 1
                    self.count("fault." + str(rule["kind"]))
                    return rule
        return None


class Refused(Exception):
    """An answer that is an error of S3."""

    def __init__(self, status: int, code: str, message: str, extra: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(code)
        self.status, self.code, self.message, self.extra, self.headers = status, code, message, extra, headers or {}


def encode(text: str, path: bool = False) -> str:
    """Percent-encoding as signatures want it."""
    return urllib.parse.quote(text, safe="/-_.~" if path else "-_.~")


def md5(data: bytes) -> str:
    """An ETag."""
    return '"' + hashlib.md5(data).hexdigest() + '"'


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_version = "tests"
    disable_nagle_algorithm = True  # head and body are two writes: without this each answer waits 40 ms for an ACK
    state: State
    body: bytes

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on standard error."""

    def date_time_string(self, timestamp: float | None = None) -> str:
        """The Date header, by the server's own clock."""
        return super().date_time_string((timestamp or time.time()) + self.state.args.clock_offset)

    # ---- signature ----

    def check_signature(self, raw_path: str, query: list[tuple[str, str]]) -> None:
        """Version 4, computed from what came over the wire."""
        args = self.state.args
        header = self.headers.get("Authorization")
        if not header:
            if args.anonymous:
                return
            raise Refused(403, "AccessDenied", "Access Denied")
        if not header.startswith("AWS4-HMAC-SHA256 "):
            raise Refused(400, "InvalidRequest", "unknown kind of authorization")
        fields = dict(f.strip().split("=", 1) for f in header[17:].split(","))
        key, day, region, service, end = fields["Credential"].split("/")
        if key != args.key:
            raise Refused(403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.",
                          f"<AWSAccessKeyId>{key}</AWSAccessKeyId>")
        if args.token and self.headers.get("x-amz-security-token") != args.token:
            raise Refused(400, "ExpiredToken", "The provided token has expired.")
        if region != args.region:
            raise Refused(400, "AuthorizationHeaderMalformed", f"the region '{region}' is wrong; expecting '{args.region}'",
                          f"<Region>{args.region}</Region>", {"x-amz-bucket-region": args.region})
        stamp = self.headers.get("x-amz-date", "")
        now = datetime.now(timezone.utc) + timedelta(seconds=args.clock_offset)
        if abs((now - datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)).total_seconds()) > 900:
            raise Refused(403, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
        payload = self.headers.get("x-amz-content-sha256", "")
        if payload != "UNSIGNED-PAYLOAD" and payload != hashlib.sha256(self.body).hexdigest():
            raise Refused(400, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match.")
        if payload == "UNSIGNED-PAYLOAD" and not args.cert:
            raise Refused(400, "InvalidRequest", "unsigned payload over plain HTTP")
        names = fields["SignedHeaders"].split(";")
        assert names == sorted(names) and "host" in names
        canonical = "\n".join([
            self.command, encode(urllib.parse.unquote(raw_path), True),
            "&".join(f"{encode(k)}={encode(v)}" for k, v in sorted(query)),
            *[f"{n}:{' '.join((self.headers.get(n) or '').split())}" for n in names], "", ";".join(names), payload])
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, f"{day}/{region}/{service}/{end}",
                          hashlib.sha256(canonical.encode()).hexdigest()])
        k = ("AWS4" + args.secret).encode()
        for part in (day, region, service, end):
            k = hmac.new(k, part.encode(), hashlib.sha256).digest()
        if hmac.new(k, text.encode(), hashlib.sha256).hexdigest() != fields["Signature"]:
            raise Refused(403, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.",
                          f"<StringToSign>{sax.escape(text)}</StringToSign>")

    # ---- answering ----

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None, length: int | None = None) -> None:
        """Sends an answer, spoilt where a rule says so."""
        kind = self.rule.get("kind") if self.rule else None
        if kind == "lost":
            return self.hang_up()
        self.send_response(status)
        for k, v in (headers or {}).items():
            self.send_header(k, '"0123456789abcdef0123456789abcdef"' if kind == "wrong_etag" and k == "ETag" else v)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        if self.command == "HEAD":
            return None
        if kind == "cut":
            self.wfile.write(body[:len(body) // 2])
            self.wfile.flush()
            return self.hang_up()
        self.wfile.write(body)
        self.state.count("bytes_out", len(body))
        return None

    def hang_up(self) -> None:
        """Breaks the connection with a reset."""
        self.close_connection = True
        raw = self.connection
        try:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.wfile.flush()
            raw.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        raw.close()

    def refuse(self, e: Refused) -> None:
        """An error as S3 words it."""
        body = f'<?xml version="1.0"?><Error><Code>{e.code}</Code><Message>{sax.escape(e.message)}</Message>{e.extra}</Error>'
        self.answer(e.status, body.encode(), {"Content-Type": "application/xml", **e.headers})

    def xml(self, text: str, status: int = 200) -> None:
        """An answer in XML."""
        self.answer(status, ('<?xml version="1.0" encoding="UTF-8"?>\n' + text).encode(), {"Content-Type": "application/xml"})

    # ---- requests ----

    def handle_one(self) -> None:
        """Any method."""
        self.rule: dict[str, Any] | None = None
        raw, _, q = self.path.partition("?")
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if raw.startswith("/_"):
            return self.admin(raw)
        query = urllib.parse.parse_qsl(q, keep_blank_values=True)
        path = urllib.parse.unquote(raw)
        self.state.count(self.command)
        self.state.count("requests")
        self.rule = self.state.fault(self.command, path + ("?" + q if q else ""))
        try:
            if not self.spoil():
                self.check_signature(raw, query)
                bucket, _, key = path[1:].partition("/")
                self.route(bucket, key, dict(query))
        except Refused as e:
            self.refuse(e)
        return None

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_one

    def spoil(self) -> bool:
        """Faults that replace the answer; True: done."""
        kind = self.rule.get("kind") if self.rule else None
        answers = {"500": (500, "InternalError"), "503": (503, "ServiceUnavailable"), "slowdown": (503, "SlowDown"),
                   "429": (429, "TooManyRequests"), "timeout408": (408, "RequestTimeout"), "expired": (400, "ExpiredToken"),
                   "denied": (403, "AccessDenied")}
        if str(kind) in answers:
            status, code = answers[str(kind)]
            raise Refused(status, code, "injected")
        if kind == "redirect":
            raise Refused(301, "PermanentRedirect", "elsewhere", f"<Region>{self.state.args.region}</Region>",
                          {"x-amz-bucket-region": self.state.args.region})
        if kind == "reset":
            self.hang_up()
            return True
        if kind == "garbage":
            self.xml("<html><b>proxy")
            return True
        if kind in ("slow", "hang"):
            time.sleep(self.rule.get("seconds", 0.5))  # type: ignore[union-attr]
        if kind == "error200" and self.command == "POST":
            self.xml("<Error><Code>InternalError</Code><Message>injected</Message></Error>")
            return True
        return False

    def admin(self, raw: str) -> None:
        """Faults and counts."""
        s = self.state
        with s.lock:
            if raw == "/_faults":
                s.faults = json.loads(self.body)
            elif raw == "/_reset":
                s.faults, s.stats = [], {}
            elif raw == "/_replace":
                for objects in s.buckets.values():
                    for k, (data, _, _) in objects.items():
                        if not k.endswith(".mrm"):
                            objects[k] = (data[:-1] + b"!", md5(data[:-1] + b"!"), time.time())
            keys = [f"{b}/{k}" for b, objects in sorted(s.buckets.items()) for k in sorted(objects)]
            text = json.dumps([[b, k] for b, k, _, _ in s.uploads.values()] if raw == "/_uploads" else keys if raw == "/_keys" else s.stats)
        self.answer(200, text.encode())

    def route(self, bucket: str, key: str, q: dict[str, str]) -> None:
        """What is asked for."""
        s, m = self.state, self.command
        if m in ("PUT", "POST", "DELETE") and s.args.readonly_prefix and key.startswith(s.args.readonly_prefix):
            raise Refused(403, "AccessDenied", "Access Denied")
        if m == "PUT" and not key:
            with s.lock:
                s.buckets.setdefault(bucket, {})
                s.save()
            return self.answer(200)
        if bucket == "million" and m == "GET" and not key:
            return self.list_million(q)
        if bucket not in s.buckets:
            raise Refused(404, "NoSuchBucket", "The specified bucket does not exist")
        if m == "POST" and "delete" in q:
            return self.delete_many(bucket)
        if m == "POST" or "uploadId" in q or "uploads" in q:
            return self.multipart(bucket, key, q)
        if m == "GET" and not key:
            return self.list_keys(bucket, q)
        if m == "PUT":
            return self.put(bucket, key, self.body, md5(self.body))
        if m == "DELETE":
            with s.lock:
                s.buckets[bucket].pop(key, None)
                s.save()
            return self.answer(204)
        if not key:
            return self.answer(200)
        return self.get(bucket, key)

    def get(self, bucket: str, key: str) -> None:
        """GET and HEAD of an object."""
        with self.state.lock:
            there = self.state.buckets[bucket].get(key)
        if there is None:
            raise Refused(404, "NoSuchKey", "The specified key does not exist.")
        data, etag, when = there
        stamp = datetime.fromtimestamp(when, timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
        head = {"ETag": etag, "Last-Modified": stamp, "Accept-Ranges": "bytes"}
        if self.headers.get("If-Match", etag) != etag:
            raise Refused(412, "PreconditionFailed", "At least one of the preconditions you specified did not hold.")
        want = self.headers.get("Range")
        if self.command == "HEAD":
            return self.answer(200, b"", head, len(data))
        self.state.count("data_requests")
        self.state.count("data_requests." + ("manifest" if key.endswith(".mrm") else "other"))
        if not want:
            return self.answer(200, data, head)
        first, last = (int(x) for x in want[6:].split("-"))
        if first >= len(data):
            raise Refused(416, "InvalidRange", "The requested range is not satisfiable", "", {"Content-Range": f"bytes */{len(data)}"})
        part = data[first:last + 1]
        if self.rule and self.rule.get("kind") == "short":
            part = part[:len(part) // 2]
        if not key.endswith(".mrm"):
            self.state.count("data_bytes", len(part))
        return self.answer(206, part, {**head, "Content-Range": f"bytes {first}-{first + len(part) - 1}/{len(data)}"})

    def put(self, bucket: str, key: str, data: bytes, etag: str, xml: str | None = None) -> None:
        """A whole object appears."""
        s = self.state
        with s.lock:
            if self.headers.get("If-None-Match") == "*" and key in s.buckets[bucket]:
                raise Refused(412, "PreconditionFailed", "At least one of the preconditions you specified did not hold.")
            s.buckets[bucket][key] = (data, etag, time.time())
            s.count("bytes_in", len(data))
            s.save()
        if xml is None:
            self.answer(200, b"", {"ETag": etag})
        else:
            self.xml(xml)

    def multipart(self, bucket: str, key: str, q: dict[str, str]) -> None:
        """Parts of an upload."""
        s, m = self.state, self.command
        with s.lock:
            if m == "GET":
                items = "".join(f"<Upload><Key>{sax.escape(k)}</Key><UploadId>{i}</UploadId><Initiated>"
                                f"{datetime.fromtimestamp(w, timezone.utc).strftime('%Y-%m-%dT%H:%M:%S.000Z')}</Initiated></Upload>"
                                for i, (b, k, _, w) in s.uploads.items() if b == bucket and k.startswith(q.get("prefix", "")))
                return self.xml(f"<ListMultipartUploadsResult {NS}><IsTruncated>false</IsTruncated>{items}</ListMultipartUploadsResult>")
            if m == "POST" and "uploads" in q:
                s.serial += 1
                new = f"upload-{s.serial}+/="
                s.uploads[new] = (bucket, key, {}, time.time())
                s.save()
                return self.xml(f"<InitiateMultipartUploadResult {NS}><UploadId>{new}</UploadId></InitiateMultipartUploadResult>")
            upload = s.uploads.get(q["uploadId"])
            if upload is None or upload[:2] != (bucket, key):
                raise Refused(404, "NoSuchUpload", "The specified upload does not exist.")
            if m == "DELETE":
                del s.uploads[q["uploadId"]]
                s.save()
                return self.answer(204)
            if m == "PUT":
                upload[2][int(q["partNumber"])] = (self.body, md5(self.body))
                s.save()
                return self.answer(200, b"", {"ETag": md5(self.body)})
            return self.complete(bucket, key, q["uploadId"])

    def complete(self, bucket: str, key: str, upload: str) -> None:
        """Joins the parts that the request names, after the checks that S3 makes."""
        s = self.state
        parts, text = s.uploads[upload][2], self.body.decode()
        wanted = [(int(p.split("<PartNumber>")[1].split("<")[0]), sax.unescape(p.split("<ETag>")[1].split("<")[0], {"&quot;": '"'}))
                  for p in text.split("<Part>")[1:]]
        if [n for n, _ in wanted] != sorted(n for n, _ in wanted) or any(parts.get(n, (b"", ""))[1] != e for n, e in wanted):
            raise Refused(400, "InvalidPart", "One or more of the specified parts could not be found.")
        if any(len(parts[n][0]) < 5 << 20 for n, _ in wanted[:-1]):
            raise Refused(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size.")
        data = b"".join(parts[n][0] for n, _ in wanted)
        tag = hashlib.md5(b"".join(bytes.fromhex(e.strip('"')) for _, e in wanted)).hexdigest()
        self.put(bucket, key, data, f'"{tag}-{len(wanted)}"',
                 f"<CompleteMultipartUploadResult {NS}><Key>{sax.escape(key)}</Key></CompleteMultipartUploadResult>")
        del s.uploads[upload]
        s.save()

    def delete_many(self, bucket: str) -> None:
        """DeleteObjects, which needs a checksum."""
        import base64
        if self.headers.get("Content-MD5") != base64.b64encode(hashlib.md5(self.body).digest()).decode():
            raise Refused(400, "BadDigest", "The Content-MD5 you specified did not match what we received.")
        keys = [sax.unescape(k.split("</Key>")[0]) for k in self.body.decode().split("<Key>")[1:]]
        with self.state.lock:
            for k in keys:
                self.state.buckets[bucket].pop(k, None)
            self.state.save()
        self.xml(f"<DeleteResult {NS}></DeleteResult>")

    def list_keys(self, bucket: str, q: dict[str, str]) -> None:
        """ListObjectsV2."""
        prefix, delimiter, most = q.get("prefix", ""), q.get("delimiter", ""), min(int(q.get("max-keys", PAGE)), PAGE)
        after = q.get("continuation-token", "")
        self.state.count("list_requests")
        out: list[str] = []
        token = ""
        with self.state.lock:
            keys = sorted(k for k in self.state.buckets[bucket] if k.startswith(prefix))
            things = {k: self.state.buckets[bucket][k] for k in keys}
        last = ""
        for k in keys:
            rest = k[len(prefix):]
            folder = prefix + rest.split(delimiter)[0] + delimiter if delimiter and delimiter in rest else ""
            name = folder or k
            if name <= after or name == last:
                continue
            if len(out) == most:
                token = last
                break
            last = name
            shown = urllib.parse.quote_plus(name, safe="/-_.~") if q.get("encoding-type") == "url" else sax.escape(name)
            data, etag, when = things[k]
            stamp = datetime.fromtimestamp(when, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.000Z")
            out.append(f"<CommonPrefixes><Prefix>{shown}</Prefix></CommonPrefixes>" if folder else
                       f"<Contents><Key>{shown}</Key><LastModified>{stamp}</LastModified><ETag>{sax.escape(etag)}</ETag>"
                       f"<Size>{len(data)}</Size></Contents>")
        self.list_page(out, token, q)

    def list_page(self, out: list[str], token: str, q: dict[str, str]) -> None:
        """One page of a listing."""
        encoding = "<EncodingType>url</EncodingType>" if q.get("encoding-type") == "url" else ""
        more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{sax.escape(token)}</NextContinuationToken>" if token else \
            "<IsTruncated>false</IsTruncated>"
        self.xml(f"<ListBucketResult {NS}><Name>x</Name><Prefix></Prefix>{encoding}{more}{''.join(out)}</ListBucketResult>")

    def list_million(self, q: dict[str, str]) -> None:
        """1,000,000 keys that nobody stores, in 100 folders; below `flat/` all in one."""
        prefix, delimiter = q.get("prefix", ""), q.get("delimiter", "")
        most = min(int(q.get("max-keys", PAGE)), PAGE)
        first, out, token = int(q.get("continuation-token") or 0), [], ""
        self.state.count("list_requests")
        if prefix == "set/" and delimiter:
            out = [f"<CommonPrefixes><Prefix>set/{i:02d}/</Prefix></CommonPrefixes>" for i in range(100)]
        elif prefix == "set/":
            out = ["<Contents><Key>set/00/file0000000.raw</Key><Size>1000</Size></Contents>"]
        elif prefix.startswith(("set/", "flat/")):
            folder = prefix.rstrip("/").split("/")[-1]
            keys = range(first, min(first + most, 1000000)) if prefix == "flat/" else \
                range(int(folder) * 10000 + first, int(folder) * 10000 + min(first + most, 10000))
            out = [f"<Contents><Key>{prefix}file{i:07d}.raw</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>"
                   f"<ETag>&quot;0123456789abcdef0123456789abcdef&quot;</ETag><Size>1000</Size></Contents>" for i in keys]
            token = str(first + most) if first + most < (1000000 if prefix == "flat/" else 10000) else ""
        self.list_page(out, token, q)


class Server(ThreadingHTTPServer):
    """Many connections, each with a thread."""

    daemon_threads = True
    request_queue_size = 512

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no error; anything else is shown."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, ssl.SSLError, ValueError, OSError)):
            super().handle_error(request, client_address)


def main() -> None:
    """Serves until killed."""
    p = argparse.ArgumentParser()
    p.add_argument("--port", type=int, default=0)
    p.add_argument("--port-file", required=True)
    p.add_argument("--key", default="test-key-0001")
    p.add_argument("--secret", default="test/secret+0001")
    p.add_argument("--token", default="")
    p.add_argument("--region", default="us-east-1")
    p.add_argument("--cert", default="")
    p.add_argument("--clock-offset", type=float, default=0)
    p.add_argument("--readonly-prefix", default="")
    p.add_argument("--anonymous", action="store_true")
    p.add_argument("--store", default="")
    args = p.parse_args()
    Handler.state = State(args)
    server = Server(("127.0.0.1", args.port), Handler)
    if args.cert:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(args.cert)
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with open(args.port_file + ".tmp", "w", encoding="ascii") as f:
        f.write(str(server.server_address[1]))
    os.rename(args.port_file + ".tmp", args.port_file)
    server.serve_forever()


if __name__ == "__main__":
    main()
