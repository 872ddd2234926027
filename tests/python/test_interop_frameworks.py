"""Data sets of `millrace gen` in the frameworks that read such files, and theirs in `millrace scan`: TensorFlow (TFRecord, plain
and gzip), WebDataset (tar shards), torchvision's ImageFolder (its order and class numbers), DALI's index. Each part is skipped
where its package is missing; `make test-full` installs TensorFlow and WebDataset."""
import json
import os
import struct
import subprocess
import tempfile
import unittest

MILLRACE = os.environ.get("MILLRACE", "millrace")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


def run(*args, status=0):
    p = subprocess.run([MILLRACE, *map(str, args)], capture_output=True)
    assert p.returncode == status, (args, p.returncode, p.stderr.decode())
    return p.stdout


def samples(folder):
    """(label, payload) of all samples, by our reader."""
    n = json.loads(run("show", folder, "--json"))["samples"]
    return [(json.loads(run("cat", folder, i, "--json"))["label"], run("cat", folder, i)) for i in range(n)]


def contents(path):
    with open(path, "rb") as f:
        return f.read()


def package(name):
    try:
        return __import__(name)
    except ImportError as e:
        raise unittest.SkipTest("%s is not installed (%s)" % (name, e))


class Frameworks(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.dir = self.tmp.name

    def tearDown(self):
        self.tmp.cleanup()

    def gen(self, *args):
        run("gen", self.dir + "/set", "--files", 3, "--samples-per-file", 5, "--labels", 10, "--quiet", *args)
        folder = self.dir + "/set/train"
        return folder, [os.path.join(folder, f) for f in sorted(os.listdir(folder)) if f[0] != "." and f.startswith("img")]

    def test_dali_index_lists_every_record(self):
        _, files = self.gen("--format", "tfrecord", "--size", 1234, "--size-stdev", 200)
        for path in (f for f in files if f.endswith(".tfrecord")):
            data, at, want = contents(path), 0, ""
            while at < len(data):  # what tfrecord2idx prints
                size = 16 + struct.unpack_from("<Q", data, at)[0]
                want += "%d %d\n" % (at, size)
                at += size
            self.assertEqual(contents(path + ".idx").decode(), want)

    def test_tensorflow_reads_our_sets(self):
        tf = package("tensorflow")
        for more, kind in ((), None), (("--compression", "gzip", "--compressibility", 50), "GZIP"):
            folder, files = self.gen("--format", "tfrecord", "--size", 3000, "--size-stdev", 700, *more, "--overwrite")
            records = [f for f in files if not f.endswith(".idx")]
            spec = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
            got = [tf.io.parse_single_example(r, spec) for r in tf.data.TFRecordDataset(records, compression_type=kind)]
            self.assertEqual(len(got), 15)
            self.assertEqual([(int(g["label"]), g["image"].numpy()) for g in got], samples(folder))

    def test_we_read_what_tensorflow_wrote(self):
        tf = package("tensorflow")
        for kind in "", "GZIP":
            folder = self.dir + "/tf" + kind
            os.mkdir(folder)
            want = []
            for shard in range(2):
                with tf.io.TFRecordWriter("%s/s%d.tfrecord%s" % (folder, shard, ".gz" if kind else ""), kind or None) as w:
                    for i in range(7):
                        image = os.urandom(100 + 333 * i)
                        want.append((shard * 100 + i, image))
                        feature = {"image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])),
                                   "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[shard * 100 + i])),
                                   "box": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5, 1.5]))}
                        w.write(tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString())
            run("scan", folder)
            self.assertEqual(samples(folder), want)
            run("verify", folder)

    def test_webdataset_reads_our_shards(self):
        wds = package("webdataset")
        folder, files = self.gen("--format", "tar", "--size", 2000, "--size-stdev", 300)
        got = list(wds.WebDataset(files, shardshuffle=False).decode())
        self.assertEqual(len({g["__key__"] for g in got}), 15)
        self.assertEqual([(int(g["cls"]), g["bin"]) for g in got], samples(folder))

    def test_we_read_what_webdataset_wrote(self):
        wds = package("webdataset")
        folder = self.dir + "/wds"
        os.mkdir(folder)
        want = []
        with wds.ShardWriter(folder + "/s-%03d.tar", maxcount=4, verbose=0) as w:
            for i in range(10):
                image = os.urandom(50 + 777 * i)
                want.append((i % 3, image))
                w.write({"__key__": "a/%05d" % i, "bin": image, "cls": i % 3, "json": {"n": i}})
        run("scan", folder)
        self.assertEqual(samples(folder), want)

    def test_image_folder_has_torchvisions_order_and_classes(self):
        package("PIL")
        from PIL import Image
        root = self.dir + "/images"
        for k, name in enumerate(("zebra", "cat", "n01440764", "Dog")):
            for i in (10, 2, 1):
                path = "%s/%s/%s" % (root, name, "sub/" if i == 2 else "")
                os.makedirs(path, exist_ok=True)
                name_of = "%simg%d.%s" % (path, i, "JPEG" if i == 1 else "jpg")
                Image.new("RGB", (20 + i, 17 + k), (k * 60, i * 20, 7)).save(name_of, format="JPEG")
        try:
            from torchvision.datasets import ImageFolder
            want = [(p, label) for p, label in ImageFolder(root).samples]
        except ImportError:  # its rule: classes by name, each of them folder by folder, names sorted
            want = [(os.path.join(folder, n), label) for label, c in enumerate(sorted(os.listdir(root)))
                    for folder, _, names in sorted(os.walk(os.path.join(root, c))) for n in sorted(names)]
        run("scan", root)
        about = [json.loads(run("show", root, i, "--json")) for i in range(len(want))]
        self.assertEqual([(a["path"], a["label"]) for a in about], want)
        for i, (path, _) in enumerate(want):
            self.assertEqual(run("cat", root, i, "--raw"), contents(path))
            with Image.open(path) as picture:
                self.assertEqual(json.loads(run("cat", root, i, "--json"))["dims"], [picture.height, picture.width, 3])
                self.assertEqual(run("cat", root, i), picture.tobytes())


if __name__ == "__main__":
    unittest.main()
