"""Images both ways: files written by Millrace open in Pillow with the same pixels, files written by Pillow are scanned and
decoded by Millrace, and broken ones are refused with exit status 4."""
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from PIL import Image
except ImportError as e:
    print(f"SKIP: {e}")
    sys.exit(77)

millrace = os.environ.get("MILLRACE", "build/bin/millrace")


def run(*args, status=0):
    p = subprocess.run([millrace, *args], capture_output=True, timeout=120)
    assert p.returncode == status, f"{args}: exit {p.returncode}, wanted {status}\n{p.stderr.decode()}"
    return p


def sample(folder, number):
    """Sample of a data set as Millrace decodes it."""
    told = json.loads(run("cat", folder, str(number), "--json").stdout)
    dims = told["dims"]
    dtype = np.dtype(told["dtype"])
    return np.frombuffer(run("cat", folder, str(number)).stdout, dtype).reshape(dims)


def psnr(a, b):
    assert a.shape == b.shape, (a.shape, b.shape)
    mean = np.mean((a.astype(float) - b.astype(float)) ** 2)
    return 99.0 if mean == 0 else 10 * np.log10(255.0**2 / mean)


def data_files(folder, suffix):
    found = [os.path.join(d, n) for d, _, names in os.walk(folder) for n in names if n.endswith(suffix) and n[0] != "."]
    return sorted(found)


def pixels(image):
    a = np.asarray(image)
    return a if a.ndim == 3 else a[:, :, None]


def ours_open_in_pillow(tmp):
    for fmt, suffix, extra in (("jpeg", ".jpg", ["--quality", "85"]), ("png", ".png", [])):
        folder = os.path.join(tmp, "ours-" + fmt)
        run("gen", folder, "--format", fmt, "--files", "12", "--size", "30000", "--size-stdev", "5000", "--seed", "3", *extra)
        files = data_files(folder, suffix)
        assert len(files) == 12, files
        sizes = np.array([os.path.getsize(f) for f in files])
        assert abs(sizes.mean() / 30000 - 1) < 0.03 and abs(sizes.std(ddof=0) / 5000 - 1) < 0.25, (sizes.mean(), sizes.std())
        for number, name in enumerate(files):
            with Image.open(name) as im:
                im.load()
                assert im.format == fmt.upper() and im.mode == "RGB", (im.format, im.mode)
                theirs = pixels(im)
            mine = sample(folder, number)
            if fmt == "png":
                assert np.array_equal(mine, theirs), name
            else:
                assert psnr(mine, theirs) > 45, (name, psnr(mine, theirs))
        run("verify", folder)


def picture(h, w, c):
    y, x = np.mgrid[0:h, 0:w]
    planes = [128 + 90 * np.sin((x + 3 * k) / (9.0 + k)) * np.cos((y - k) / 11.0) for k in range(c)]
    return np.clip(np.stack(planes, -1), 0, 255).astype(np.uint8)


def theirs_are_read(tmp):
    rgb = picture(97, 131, 3)
    turned = Image.Exif()
    turned[0x0112] = 6  # orientation, which neither side applies
    jpegs = {
        "a/baseline.jpg": (Image.fromarray(rgb), {"quality": 90}),
        "a/progressive.jpg": (Image.fromarray(rgb), {"quality": 90, "progressive": True}),
        "a/full_chroma.jpg": (Image.fromarray(rgb), {"quality": 95, "subsampling": 0, "optimize": True}),
        "b/grey.jpg": (Image.fromarray(rgb[:, :, 0]), {"quality": 90}),
        "b/cmyk.jpg": (Image.fromarray(rgb).convert("CMYK"), {"quality": 95}),
        "b/comment.jpg": (Image.fromarray(rgb), {"quality": 80, "comment": b"x" * 5000, "exif": turned}),
    }
    pngs = {
        "a/rgb.png": Image.fromarray(rgb),
        "a/rgba.png": Image.fromarray(picture(50, 60, 4)),
        "a/grey.png": Image.fromarray(rgb[:, :, 0]),
        "b/palette.png": Image.fromarray(rgb).quantize(64),
        "b/bits.png": Image.fromarray(rgb[:, :, 0]).convert("1"),
        "b/grey_alpha.png": Image.fromarray(rgb[:, :, 0]).convert("LA"),
        "b/sixteen.png": Image.fromarray((np.arange(97 * 131).reshape(97, 131) * 5).astype(np.uint16)),
    }
    for fmt, images in (("jpeg", jpegs), ("png", {k: (v, {}) for k, v in pngs.items()})):
        folder = os.path.join(tmp, "theirs-" + fmt)
        for name, (image, options) in images.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            image.save(path, **options)
        run("scan", folder)
        for number, name in enumerate(sorted(images)):
            told = json.loads(run("cat", folder, str(number), "--json").stdout)
            mine = sample(folder, number)
            with Image.open(os.path.join(folder, name)) as im:
                if im.mode in ("P", "CMYK"):
                    im = im.convert("RGB")
                elif im.mode == "1":
                    im = im.convert("L")
                theirs = pixels(im)
            assert told["label"] == (0 if name.startswith("a/") else 1), told
            if fmt == "png":
                assert np.array_equal(mine, theirs), name
            else:
                assert psnr(mine, theirs) > 40, (name, psnr(mine, theirs))


def broken_are_refused(tmp):
    folder = os.path.join(tmp, "broken")
    os.makedirs(folder)
    good = os.path.join(folder, "x.jpg")
    Image.fromarray(picture(97, 131, 3)).save(good, quality=90)
    with open(good, "rb") as f:
        whole = f.read()
    with open(good, "wb") as f:
        f.write(whole[: len(whole) * 2 // 3])
    run("scan", folder)
    p = run("cat", folder, "0", status=4)
    assert b"JPEG" in p.stderr and b"x.jpg" in p.stderr, p.stderr
    with open(good, "wb") as f:
        f.write(b"this is no image")
    run("scan", folder, "-o", os.path.join(tmp, "m.mrm"), status=4)


with tempfile.TemporaryDirectory() as t:
    ours_open_in_pillow(t)
    theirs_are_read(t)
    broken_are_refused(t)
print("ok")
