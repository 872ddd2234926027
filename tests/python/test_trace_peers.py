"""Exports read by the tools they are made for: the Perfetto protobuf by the message definitions that Perfetto publishes (PyPI 'perfetto':
nothing unknown in it, every reference resolved), the .pfw.gz by DFTracer's own utilities (PyPI 'dftracer-utils': every line valid, every
event counted). Both are installed under build/ by MR_TEST_FULL=1; without it and without them the test is skipped.

test-label: full"""
import collections
import csv
import os
import subprocess
import sys
import tempfile

MILLRACE, BUILD = os.environ["MILLRACE"], os.environ["MR_BINARY_DIR"]
PEERS = os.path.join(BUILD, "venv-peers")
PACKAGES = ("perfetto==0.59.1", "protobuf", "dftracer-utils==0.0.12")


def skip(why):
    print("SKIP: " + why)
    sys.exit(77)


def peers():
    """The interpreter that has the peers' packages."""
    python = os.path.join(PEERS, "bin", "python3")
    if subprocess.run([sys.executable, "-c", "import perfetto, dftracer.utils"], capture_output=True).returncode == 0:
        return sys.executable
    if not os.path.exists(os.path.join(PEERS, "ready")):
        if not os.environ.get("MR_TEST_FULL"):
            skip("the packages perfetto and dftracer-utils are not installed; MR_TEST_FULL=1 installs them under the build folder")
        made = subprocess.run([sys.executable, "-m", "venv", "--clear", PEERS], capture_output=True, text=True)
        if made.returncode == 0:
            made = subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-input", *PACKAGES], capture_output=True, text=True)
        if made.returncode:
            skip("pip cannot install %s: %s" % (" ".join(PACKAGES), (made.stderr or made.stdout).strip().splitlines()[-1:]))
        open(os.path.join(PEERS, "ready"), "w").close()
    return python


SCRIPT = r"""
import os, sys, threading
sys.path.insert(0, sys.argv[2])
from millrace import trace
d = os.fsencode(sys.argv[1])
def work():
    for n, name in enumerate((b"plain", b"new\nline", b'quote"s', b"back\\slash", b"ctl\x01\x7f", b"\xff\xfe", "ä😀".encode(), b"a,b;'")):
        with trace.region("step", category="train", step=n, note="x\ny\"", lr=0.5):
            fd = os.open(os.path.join(d, name), os.O_CREAT | os.O_RDWR, 0o600)
            os.write(fd, b"x" * 100); os.pread(fd, 50, 10); os.close(fd)
        trace.counter("queue", n)
        trace.instant("mark", n=n)
trace.metadata(model="m")
work()
t = threading.Thread(target=work); t.start(); t.join()
if not os.fork():
    work(); os._exit(0)
os.wait()
"""

# Run by the peers' interpreter.
PERFETTO = r"""
import collections, sys
from google.protobuf import unknown_fields
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
data = open(sys.argv[1], "rb").read()
trace = pb.Trace()
trace.ParseFromString(data)
def walk(message, path):
    assert not len(unknown_fields.UnknownFieldSet(message)), path
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for one in ([value] if hasattr(value, "ListFields") else value):
                walk(one, path + "." + field.name)
walk(trace, "Trace")
assert pb.Trace.FromString(trace.SerializeToString()) == trace
TE = pb.TrackEvent
names, tracks, open_slices, count = {}, set(), collections.Counter(), collections.Counter()
started, last = set(), collections.Counter()
for p in trace.packet:
    s = p.trusted_packet_sequence_id
    assert s, "a packet without a sequence"
    if p.sequence_flags & pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
        names = {k: v for k, v in names.items() if k[0] != s}
        started.add(s)
    assert s in started, "the first packet of a sequence must clear its state"
    for kind in ("event_names", "event_categories", "debug_annotation_names", "debug_annotation_string_values"):
        for entry in getattr(p.interned_data, kind):
            names[s, kind, entry.iid] = entry.name if kind != "debug_annotation_string_values" else entry.str
    if p.HasField("track_descriptor"):
        d = p.track_descriptor
        tracks.add(d.uuid)
        assert not d.HasField("parent_uuid") or d.parent_uuid in tracks
    if p.HasField("track_event"):
        e = p.track_event
        assert p.HasField("timestamp") and e.track_uuid in tracks
        assert p.sequence_flags & pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE or e.type in (TE.TYPE_SLICE_END, TE.TYPE_COUNTER), e
        if e.type in (TE.TYPE_SLICE_BEGIN, TE.TYPE_INSTANT):
            assert names[s, "event_names", e.name_iid]
            for c in e.category_iids:
                assert names[s, "event_categories", c]
            for a in e.debug_annotations:
                assert names[s, "debug_annotation_names", a.name_iid]
                assert a.WhichOneof("value") != "string_value_iid" or (s, "debug_annotation_string_values", a.string_value_iid) in names
        open_slices[e.track_uuid] += {TE.TYPE_SLICE_BEGIN: 1, TE.TYPE_SLICE_END: -1}.get(e.type, 0)
        count[TE.Type.Name(e.type)] += 1
assert not +open_slices and not -open_slices, "slices left open"
print(count["TYPE_SLICE_BEGIN"], count["TYPE_SLICE_END"], count["TYPE_INSTANT"], count["TYPE_COUNTER"])
"""


def main():
    python = peers()
    with tempfile.TemporaryDirectory() as folder:
        trace = os.path.join(folder, "t.mrt")
        subprocess.run([MILLRACE, "trace", "--quiet", "-o", trace, "--", sys.executable, "-c", SCRIPT, folder, os.path.join(BUILD, "python")], check=True)
        os.mkdir(os.path.join(folder, "pfw"))
        out = {"csv": "t.csv", "perfetto": "t.pftrace", "pfw": "pfw/t.pfw.gz"}
        for kind, name in out.items():
            subprocess.run([MILLRACE, "export", "-f", kind, "-o", os.path.join(folder, name), trace], check=True)
        with open(os.path.join(folder, "t.csv"), newline="", errors="surrogateescape") as f:
            rows = list(csv.DictReader(f))
        names = collections.Counter(r["name"] for r in rows)
        assert names["step"] == 24 and names["mark"] == 24 and names["queue"] == 24, names
        got = subprocess.run([python, "-c", PERFETTO, os.path.join(folder, "t.pftrace")], check=True, capture_output=True, text=True).stdout.split()
        begins, ends, instants, counters = map(int, got)
        assert counters == 24 and instants >= 24 and begins == ends and begins + instants + counters in (len(rows), len(rows) - 1), (got, len(rows))
        print("ok Perfetto's definitions: %d slices, %d instants, %d counter values, nothing unknown" % (begins, instants, counters))
        tools = os.path.dirname(python)
        pfw = os.path.join(folder, "pfw")
        said = subprocess.run([os.path.join(tools, "dftracer_validate"), "--files", os.path.join(pfw, "t.pfw.gz")], capture_output=True, text=True)
        assert said.returncode == 0 and "1 passed, 0 failed" in said.stdout + said.stderr, said
        said = subprocess.run([os.path.join(tools, "dftracer_event_count"), "-d", pfw], capture_output=True, text=True, check=True)
        counted = int(said.stdout.strip().splitlines()[-1])
        assert counted in (len(rows), len(rows) - 1), (counted, len(rows))
        print("ok DFTracer's utilities: %d events, every line valid" % counted)


main()
