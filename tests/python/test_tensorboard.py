"""`export -f tensorboard`: records whose checksums hold, scalars that are the steps of the report; with MR_TEST_FULL=1 TensorBoard's own
reader opens them (tensorboard from PyPI, in build/venv-tensorboard, where pip can install it)."""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

MILLRACE = os.environ["MILLRACE"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def masked(data):
    crc = 0xFFFFFFFF
    for b in data:
        crc = crc >> 8 ^ TABLE[(crc ^ b) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data, at = path.read_bytes(), 0
    while at < len(data):
        head, (n, crc) = data[at : at + 8], struct.unpack_from("<QI", data, at)
        body = data[at + 12 : at + 12 + n]
        assert masked(head) == crc and struct.unpack_from("<I", data, at + 12 + n)[0] == masked(body), at
        yield body
        at += 16 + n


def varint(data, at):
    value = shift = 0
    while True:
        b = data[at]
        value, shift, at = value | (b & 127) << shift, shift + 7, at + 1
        if b < 128:
            return value, at


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            n, at = varint(data, at)
            value, at = data[at : at + n], at + n
        else:
            form = "<d" if key & 7 == 1 else "<f"
            value, at = struct.unpack_from(form, data, at)[0], at + struct.calcsize(form)
        yield key >> 3, value


def scalars(path):
    """{tag: [(step, wall time, value)]}"""
    found = {}
    bodies = list(records(path))
    assert dict(fields(bodies[0]))[3] == b"brain.Event:2"
    for body in bodies[1:]:
        event = dict(fields(body))
        for number, value in fields(event[5]):
            value = dict(fields(value))
            if number == 1 and 2 in value:
                found.setdefault(value[1].decode(), []).append((event[2], event[1], value[2]))
    return found


def run(*words):
    return subprocess.run([MILLRACE, "-q", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def check(trace, log):
    report = json.loads(run("report", trace, "--json"))
    files = sorted(log.rglob("*tfevents*"))
    assert len(files) == 2 and {f.parent.name for f in files} == {"rank-0", "rank-1"}, files
    for f in files:
        found = scalars(f)
        took = [v for _, _, v in found["step/duration_s"]]
        assert [s for s, _, _ in found["step/duration_s"]] == list(range(len(took))) and len(took) == 24, found.keys()
        walls = [w for _, w, _ in found["step/duration_s"]]
        assert walls == sorted(walls) and walls[0] > 1.5e9
        assert all(0.004 < v < 2 for v in took), took
        for step, _, v in found["step/data_stall_s"]:
            assert v <= took[step] + 1e-6
    whole = sum(v for f in files for _, _, v in scalars(f)["time/compute_s"]) / 2
    assert abs(whole - report["time"]["compute_s"]) < 0.02 * whole, (whole, report["time"])


def tensorboard_reads(log):
    venv = ROOT / "build" / "venv-tensorboard"
    python = venv / "bin" / "python3"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, stdout=subprocess.DEVNULL)
        pip = [python, "-m", "pip", "install", "--quiet", "--no-input", "tensorboard", "setuptools<81"]
        if subprocess.run(pip, check=False).returncode:
            print("not run: pip cannot install tensorboard")
            return
    code = """
import sys
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
m = EventMultiplexer().AddRunsFromDirectory(sys.argv[1]); m.Reload()
assert sorted(m.Runs()) == ["rank-0", "rank-1"], m.Runs()
assert len(m.Scalars("rank-1", "step/duration_s")) == 24
assert b"VERDICT" in m.Tensors("rank-0", "millrace/report")[0].tensor_proto.string_val[0]
assert m.SummaryMetadata("rank-0", "millrace/report").plugin_data.plugin_name == "text"
"""
    subprocess.run([python, "-c", code, log], check=True)


def main():
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        pathlib.Path("w.yaml").write_text(
            "workflow: {train: true}\n"
            "dataset: {format: npz, num_files_train: 16, record_length_bytes: 2000, data_folder: d}\n"
            "reader: {batch_size: 1, read_threads: 1}\ntrain: {epochs: 3, computation_time: 0.005}\n"
        )
        run("gen", "d", "--workload", "w.yaml")
        run("run", "w.yaml", "--no-ceiling", "--ranks", "2", "--out", "r")
        log = pathlib.Path("logs")
        run("export", "-f", "tensorboard", "-o", str(log), "r/trace.mrt")
        check("r/trace.mrt", log)
        run("export", "-f", "tensorboard", "-o", str(log), "r/trace.mrt")  # again: the same files
        check("r/trace.mrt", log)
        pathlib.Path("file").write_text("")
        refused = subprocess.run([MILLRACE, "export", "-f", "tensorboard", "-o", "file", "r/trace.mrt"], stderr=subprocess.PIPE, text=True)
        assert refused.returncode == 5 and "cannot make the folder 'file'" in refused.stderr, refused
        if os.environ.get("MR_TEST_FULL"):
            tensorboard_reads(log)
    print("tensorboard: ok")


main()
