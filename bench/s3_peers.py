"""Other clients of object storage, and our Python loader, under the same rule as bench/s3_read.c; run by bench/run_s3.

    s3_peers.py NAME ENDPOINT BYTES REQUESTS BUILD      each line of standard input, "N", reads N objects and prints
                                                        "bytes wall-seconds CPU-seconds"

Each peer is called as its own documentation reads many objects, with REQUESTS of them at a time; the bytes of each object end as one
object in memory. A missing library ends the program."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

OBJECTS = 1000
name, endpoint, size, requests, build = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]


def key(i: int) -> str:
    """The i-th object."""
    return f"{OBJECTS}/{size}/o{i % OBJECTS:06d}.raw"


def checked(data: bytes) -> int:
    """Its size, after a look at its last byte."""
    assert data[-1] in (ord("x"), b"x")
    return len(data)


def boto3_reader() -> Callable[[int], int]:
    """get_object in threads."""
    import boto3
    from botocore.config import Config

    config = Config(max_pool_connections=requests, s3={"addressing_style": "path"})
    client = boto3.client("s3", endpoint_url=endpoint, config=config)
    pool = ThreadPoolExecutor(requests)

    def one(i: int) -> int:
        return checked(client.get_object(Bucket="bench", Key=key(i))["Body"].read())

    return lambda n: sum(pool.map(one, range(n)))


def s3torchconnector_reader() -> Callable[[int], int]:
    """A map-style dataset of objects, indexed in threads."""
    from s3torchconnector import S3ClientConfig, S3MapDataset

    uris = [f"s3://bench/{key(i)}" for i in range(OBJECTS)]
    data = S3MapDataset.from_objects(
        uris, region="us-east-1", endpoint=endpoint, transform=lambda o: o.read(), s3client_config=S3ClientConfig(force_path_style=True)
    )
    pool = ThreadPoolExecutor(requests)
    return lambda n: sum(pool.map(lambda i: checked(data[i % OBJECTS]), range(n)))


def s3dlio_reader() -> Callable[[int], int]:
    """get_many."""
    os.environ.update(AWS_ENDPOINT_URL=endpoint, S3DLIO_LOG="error")
    import s3dlio

    def read(n: int) -> int:
        got = s3dlio.get_many([f"s3://bench/{key(i)}" for i in range(n)], max_in_flight=requests)
        return sum(checked(memoryview(data)) for _, data in got)

    return read


def loader_reader() -> Callable[[int], int]:
    """Our loader over a manifest of the same objects."""
    sys.path.insert(0, os.path.join(build, "python"))
    import millrace.numpy

    os.environ["AWS_ENDPOINT_URL"] = endpoint
    count = OBJECTS if size < 1 << 20 else 64 if size < 100e6 else 8
    with tempfile.TemporaryDirectory() as folder:
        manifest = folder + "/set.mrm"
        command = [build + "/bin/millrace", "scan", f"s3://bench/{count}/{size}", "--format", "raw", "--out", manifest]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        loader = millrace.numpy.Loader(manifest, min(requests, count), store=f"s3(connections={requests})", threads=1, verify=False)

    def read(n: int) -> int:
        done = 0
        while True:
            for batch in loader:
                done += sum(checked(row.tobytes()[-1:]) * size for row in batch.data)
                if done >= n * size:
                    return done

    return read


READERS = {"boto3": boto3_reader, "s3torchconnector": s3torchconnector_reader, "s3dlio": s3dlio_reader, "loader": loader_reader}


def main() -> None:
    """Rounds until the input ends."""
    read = READERS[name]()
    for line in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        done = read(int(line))
        print(done, time.perf_counter() - wall, time.process_time() - cpu, flush=True)


main()
