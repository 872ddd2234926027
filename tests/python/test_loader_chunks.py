"""Samples of several ranges: HDF5 files whose chunks h5py wrote in scattered order are read through queues, buffered and direct, with
the same bytes as by plain reads, and all of a sample's ranges are in flight at once."""
import csv
import json
import os
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
except ImportError as e:
    print(f"SKIP: {e}")
    sys.exit(77)

millrace = os.environ.get("MILLRACE", "build/bin/millrace")
FILES, SAMPLES, ROWS, COLUMNS, CHUNK = 3, 6, 40, 317, 5


def run(*args):
    p = subprocess.run([millrace, *args], capture_output=True, text=True, timeout=120)
    assert p.returncode == 0, f"{args}: exit {p.returncode}\n{p.stderr}"
    return p.stdout


def make(folder):
    rng = np.random.default_rng(4)
    os.makedirs(folder)
    for f in range(FILES):
        with h5py.File(os.path.join(folder, f"f{f}.h5"), "w") as h:
            d = h.create_dataset("records", (SAMPLES, ROWS, COLUMNS), "u1", chunks=(1, CHUNK, COLUMNS))
            places = [(s, r) for s in range(SAMPLES) for r in range(0, ROWS, CHUNK)]
            for k in rng.permutation(len(places)):
                s, r = places[k]
                d[s, r : r + CHUNK] = rng.integers(0, 256, (CHUNK, COLUMNS), dtype=np.uint8)


def train(tmp, name, *options):
    out, trace = os.path.join(tmp, "out-" + name), os.path.join(tmp, name + ".mrt")
    store = "uring" if "direct" in name else "posix"
    run("run", "--data", tmp, "--out", out, "--store", f"trace(file={trace}):{store}", "++workload.dataset.format=hdf5",
        f"++workload.dataset.num_files_train={FILES}", f"++workload.dataset.num_samples_per_file={SAMPLES}",
        "++workload.reader.batch_size=3", "++workload.reader.read_threads=2", "++workload.train.epochs=2",
        "--verify", *options)
    with open(os.path.join(out, "summary.json")) as f:
        rank = json.load(f)["millrace"]["per_rank"][0]
    calls = csv.DictReader(run("export", "-f", "csv", "-o", "-", trace).splitlines())
    reads = [c for c in calls if c["name"] == "pread" and c["file"].endswith(".h5")]
    return rank["rows_crc32c_sum"], reads


with tempfile.TemporaryDirectory() as tmp:
    make(os.path.join(tmp, "train"))
    run("scan", os.path.join(tmp, "train"))
    ranges = ROWS // CHUNK
    want, reads = train(tmp, "plain")
    assert want > 0 and len(reads) >= 2 * FILES * SAMPLES * 2, (want, len(reads))
    buffered, _ = train(tmp, "queue", "--io", "queue")
    assert buffered == want, (buffered, want)
    direct, reads = train(tmp, "direct", "++workload.reader.odirect=true")
    assert direct == want, (direct, want)
    at_once = {}
    for c in reads: # requests of one submission carry one start time
        at_once[c["start_unix_ns"]] = at_once.get(c["start_unix_ns"], 0) + 1
    assert max(at_once.values()) > ranges // 2, sorted(at_once.values())
print("scattered chunks: the same bytes through every queue")
