"""Folders of pictures and the transforms that the native loader knows. No framework is imported here: objects of
torchvision are recognised by their classes' names and read by their attributes."""

import copy
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ._warn import warn

NATIVE_EXTENSIONS = (".jpg", ".jpeg", ".jpe", ".png")
# Pictures that are not decoded here; a folder that has some is an error.
OTHER_EXTENSIONS = (".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp", ".gif")
CROP_NONE, CROP_CENTER, CROP_RANDOM, CROP_RANDOM_RESIZED = 0, 1, 2, 3
FILTERS = {
    "bilinear": 0,
    "bicubic": 1,
    "nearest": 2,
    "box": 3,
    "hamming": 4,
    "lanczos": 5,
    "random": 6,
}  # enum mr_filter
_PILLOW = {
    0: "nearest",
    1: "lanczos",
    2: "bilinear",
    3: "bicubic",
    4: "box",
    5: "hamming",
}  # numbers of old torchvision and of Pillow


class NotNative(Exception):
    """Why something cannot run in the native loader."""


class Folder(NamedTuple):
    """Pictures as the native loader reads them: names ascending, and where each sample of the caller's went."""

    root: str
    names: list[str]
    labels: list[int]
    ids: list[int]  # caller's sample -> position in names
    classes: list[str]


def list_folder(root: str) -> tuple[list[str], list[tuple[str, int]]]:
    """Classes and (path, class number) of a folder with one sub-folder per class, in torchvision's order."""
    root = os.path.expanduser(root)
    classes = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    samples: list[tuple[str, int]] = []
    others: list[str] = []
    for number, name in enumerate(classes):
        for folder, _, files in sorted(os.walk(os.path.join(root, name), followlinks=True)):
            samples += [
                (os.path.join(folder, f), number) for f in sorted(files) if f.lower().endswith(NATIVE_EXTENSIONS)
            ]
            others += [os.path.join(folder, f) for f in sorted(files) if f.lower().endswith(OTHER_EXTENSIONS)]
    if not samples:
        raise FileNotFoundError(
            f"no pictures in '{root}': want one sub-folder per class with files that end in "
            f"{', '.join(NATIVE_EXTENSIONS)}, "
            "or a data set with a manifest (make one with 'millrace scan')"
        )
    if others:
        more = f" and {len(others) - 1} others are pictures" if len(others) > 1 else " is a picture"
        raise NotImplementedError(
            f"'{others[0]}'{more} that Millrace does not decode: "
            "convert to JPEG or PNG, or pass torchvision's ImageFolder, which is called where it has such files"
        )
    empty = sorted(set(range(len(classes))) - {label for _, label in samples})
    if empty:
        some = ", ".join(classes[i] for i in empty[:5]) + ("..." if len(empty) > 5 else "")
        warn(f"millrace: class folders without pictures keep their numbers: {some}")
    return classes, samples


def arrange(root: str, samples: Sequence[tuple[str, int]], classes: list[str]) -> Folder:
    """Sorts files as a manifest wants them (by bytes)."""
    root = os.path.abspath(os.path.expanduser(root))
    prefix = root.rstrip("/") + "/"
    labels: dict[str, int] = {}
    for path, label in samples:
        path = os.path.abspath(path)
        if not path.lower().endswith(NATIVE_EXTENSIONS):
            raise NotNative(f"'{path}' is neither a JPEG nor a PNG file")
        if not path.startswith(prefix):
            raise NotNative(f"'{path}' is not inside '{root}'")
        if labels.setdefault(path, label) != label:
            raise NotNative(f"'{path}' has two labels")
    paths = sorted(labels, key=os.fsencode)
    place = {path: i for i, path in enumerate(paths)}
    ids = [place[os.path.abspath(path)] for path, _ in samples]
    return Folder(root, [p[len(prefix) :] for p in paths], [int(labels[p]) for p in paths], ids, classes)


def unnamed(write: Callable[[str], None]) -> int:
    """The descriptor of a manifest, written by `write`, that has no name any more: nothing is left behind however the
    process ends."""
    import tempfile

    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=f"millrace-{os.getpid()}-", dir=place) as temporary:
        path = os.path.join(temporary, "manifest.mrm")
        write(path)
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def write_manifest(folder: Folder) -> int:
    """The descriptor of the manifest of a folder."""
    from array import array

    from . import _core

    labels = array("q", folder.labels).tobytes()
    return unnamed(lambda path: _core.index_files(folder.root, folder.names, labels, "jpeg", path))


# ---- transforms ----


def _pair(size: Any) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    size = list(size)
    return (int(size[0]), int(size[0])) if len(size) == 1 else (int(size[0]), int(size[1]))


def _border(padding: Any) -> list[int]:
    """Left, top, right, bottom of torchvision's padding."""
    if not padding:
        return [0] * 4
    sides = [padding] if isinstance(padding, int) else [int(x) for x in padding]
    return (sides * 4)[:4] if len(sides) < 4 else sides


def _mode(mode: Any) -> str:
    mode = getattr(mode, "value", mode)
    return "bilinear" if mode is None else str(_PILLOW.get(mode, mode))


def _filter(name: str, t: Any, tensor: bool) -> str:
    """The resize filter of a transform: of pictures Pillow's, of tensors torch's with antialias, which are the same
    where both exist."""
    wanted = getattr(t, "interpolation", None)
    if isinstance(wanted, (list, tuple)):  # timm's "random"
        modes = [_mode(one) for one in wanted]
        if sorted(modes) != ["bicubic", "bilinear"]:
            raise NotNative(f"'{name}' chooses between {' and '.join(modes)}")
        mode = "random"
    else:
        mode = _mode(wanted)
    if tensor and mode in ("bilinear", "bicubic") and getattr(t, "antialias", True) in (False, None):
        raise NotNative(f"'{name}' of a tensor without antialias")
    if tensor and mode not in ("bilinear", "bicubic"):
        raise NotNative(f"'{name}' of a tensor with interpolation '{mode}'")
    mode = "nearest" if mode == "nearest-exact" else mode
    if mode not in FILTERS:
        raise NotNative(f"'{name}' with interpolation '{mode}'")
    return mode


class _Chain:
    """Collects what a chain of transforms amounts to: crop, resize, crop, flip, tensor, normalise."""

    def __init__(self) -> None:
        self.p: dict[str, Any] = {"rgb": 1, "planar": 1}
        self.resized = self.tensor = self.image = self.floats = self.normalised = False

    def _geometry(self, name: str) -> None:
        if self.floats and self.normalised:
            raise NotNative(f"'{name}' after Normalize")

    def _resample(self, name: str, t: Any) -> None:
        self._geometry(name)
        if self.resized or self.p.get("last_crop"):
            raise NotNative(f"'{name}' after another resize or crop")
        mode = _filter(name, t, self.tensor)
        if "flip" in self.p and name != "Resize":
            raise NotNative(f"a flip before '{name}'")
        if mode != "bilinear":
            self.p["filter"], self.p["overshoot"] = FILTERS[mode], int(self.floats)
        self.resized = True

    def Resize(self, t: Any) -> None:
        self._resample("Resize", t)
        if getattr(t, "max_size", None) is not None or t.size is None:
            raise NotNative("'Resize' with max_size")
        if isinstance(t.size, int) or len(list(t.size)) == 1:
            self.p["shorter_side"] = _pair(t.size)[0]
        else:
            self.p["height"], self.p["width"] = _pair(t.size)

    def RandomResizedCrop(self, t: Any) -> None:
        if self.p.get("crop"):
            raise NotNative("two crops before the resize")
        self._resample("RandomResizedCrop", t)
        self.p["crop"] = CROP_RANDOM_RESIZED
        self.p["height"], self.p["width"] = _pair(t.size)
        self.p["scale_min"], self.p["scale_max"] = (float(x) for x in t.scale)
        self.p["ratio_min"], self.p["ratio_max"] = (float(x) for x in t.ratio)
        if self.p["scale_max"] > 1:
            raise NotNative("'RandomResizedCrop' with a scale above 1")

    RandomResizedCropAndInterpolation = RandomResizedCrop  # timm's

    def _last(self, name: str, kind: int, size: Any) -> None:
        self._geometry(name)
        if self.p.get("last_crop"):
            raise NotNative("two crops after each other")
        self.p["last_crop"] = kind
        self.p["last_height"], self.p["last_width"] = _pair(size)

    def CenterCrop(self, t: Any) -> None:
        if "flip" in self.p:
            raise NotNative("a flip before 'CenterCrop'")
        self._last("CenterCrop", CROP_CENTER, t.size)
        self.p["pad_if_needed"] = 1

    def RandomCrop(self, t: Any) -> None:
        self._last("RandomCrop", CROP_RANDOM, t.size)
        pad, fill = _border(getattr(t, "padding", None)), getattr(t, "fill", 0) or 0
        if (any(pad) or t.pad_if_needed) and (
            getattr(t, "padding_mode", "constant") != "constant" or isinstance(fill, dict)
        ):
            raise NotNative("'RandomCrop' with padding that is not of one colour")
        if max(pad[0], pad[2]) >= self.p["last_width"] or max(pad[1], pad[3]) >= self.p["last_height"]:
            raise NotNative("'RandomCrop' with padding as large as the crop")
        fill = list(fill) if isinstance(fill, (list, tuple)) else [fill]
        if len(fill) not in (1, 3) or any(f != int(f) or not 0 <= f <= 255 for f in fill):
            raise NotNative(f"'RandomCrop' with fill {fill}")
        self.p.update(pad=pad, fill=(fill * 3)[:3], pad_if_needed=int(t.pad_if_needed))

    def RandomHorizontalFlip(self, t: Any) -> None:
        self._geometry("RandomHorizontalFlip")
        if "flip" in self.p:
            raise NotNative("two flips")
        self.p["flip"] = float(t.p)

    def ToTensor(self, t: Any) -> None:
        self.tensor = self.floats = True

    def PILToTensor(self, t: Any) -> None:
        self.tensor = True

    MaybePILToTensor = PILToTensor
    MaybeToTensor = ToTensor

    def ToImage(self, t: Any) -> None:
        self.tensor = self.image = True

    ToImageTensor = ToImage

    def RGB(self, t: Any) -> None:
        """Pictures have three channels already."""

    def ToPureTensor(self, t: Any) -> None:
        self.image = False

    def _convert(self, dtype: Any, scale: bool, name: str) -> None:
        if not self.tensor:
            raise NotNative(f"'{name}' before the picture is a tensor")
        if str(dtype) == "torch.uint8" and not self.floats:
            return
        if str(dtype) != "torch.float32" or not (scale or self.floats):
            raise NotNative(f"'{name}' to {dtype}{'' if scale else ' without scale'}")
        self.floats = True

    def ConvertImageDtype(self, t: Any) -> None:
        self._convert(t.dtype, True, "ConvertImageDtype")

    def ToDtype(self, t: Any) -> None:
        self._convert(t.dtype, bool(t.scale), "ToDtype")

    def Normalize(self, t: Any) -> None:
        if not self.floats:
            raise NotNative("'Normalize' before the values are floats")
        if self.normalised:
            raise NotNative("two 'Normalize'")
        mean, stdev = [float(x) for x in t.mean], [float(x) for x in t.std]
        if len(mean) not in (1, 3) or len(stdev) not in (1, 3):
            raise NotNative("'Normalize' of another number of channels than three")
        self.p["mean"], self.p["stdev"] = (mean * 3)[:3], (stdev * 3)[:3]
        self.normalised = True

    def ImageClassification(self, t: Any) -> None:
        """What `weights.transforms()` of a torchvision model returns."""
        self._resample("ImageClassification", t)
        self.p["shorter_side"] = _pair(t.resize_size)[0]
        self._last("ImageClassification", CROP_CENTER, t.crop_size)
        self.p["pad_if_needed"] = 1
        self.ToTensor(t)
        self.Normalize(t)

    def add(self, t: Any) -> None:
        name, module = type(t).__name__, type(t).__module__
        known = getattr(self, name, None) if not name.startswith("_") and name not in ("add", "cuts", "copy") else None
        if known is None or not module.startswith(("torchvision.transforms", "timm.data.transforms")):
            raise NotNative(f"the transform '{name}' is not one that Millrace knows")
        known(t)

    def cuts(self) -> bool:
        """Does it make pictures smaller? Only then is it worth while without the rest."""
        return self.resized or bool(self.p.get("last_crop"))

    def copy(self) -> "_Chain":
        other = copy.copy(self)
        other.p = dict(self.p)
        return other


class Parts(NamedTuple):
    """What becomes of a picture: natively first, then by calling `rest`, with pictures of a `form`: "pillow", "image"
    (of torchvision's
    tensors) or "tensor". `why`: what the first of the rest is. Without a rest all of it is native. No parameters:
        samples are no pictures."""

    parameters: dict[str, Any] | None
    rest: list[Any]
    form: str
    why: str


def _steps(transform: Any) -> list[Any]:
    if type(transform).__name__ in ("Compose", "Sequential"):
        return [step for inner in getattr(transform, "transforms", None) or list(transform) for step in _steps(inner)]
    return [transform]


def split_transform(transform: Any) -> Parts:
    """What the native loader is to do for a torchvision transform, and what is left to be called; NotNative says why
    nothing can be native."""
    chain, rest, why = _Chain(), [], ""
    steps = _steps(transform) if transform is not None else []
    for k, step in enumerate(steps):
        before = chain.copy()
        try:
            chain.add(step)
        except NotNative as reason:
            if not before.cuts():
                raise
            chain, rest, why = before, steps[k:], str(reason)
            break
    if steps and not chain.tensor and not rest:
        raise NotNative("the transform does not end in a tensor")
    chain.p["to_float"] = int(chain.floats)
    if rest and not chain.tensor:
        chain.p["planar"] = 0
    form = "image" if chain.image else "tensor" if chain.tensor or not rest else "pillow"
    return Parts(chain.p, rest, form, why)


def plain_parameters(
    size: Any,
    train: bool = True,
    resize: int | None = None,
    flip: float | None = None,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    floats: bool = True,
    channels_first: bool = False,
    fast: bool = False,
    interpolation: str = "bilinear",
) -> dict[str, Any]:
    """The two usual recipes without torchvision. Training: a random part (`scale`, `ratio`) made `size` large, flipped
    with
    probability `flip` (0.5). Else: the shorter side made `resize` long (size / 0.875), and the middle of that. Values
    are floats from 0 to 1, normalised with `mean` and `std` where given; bytes with floats=False. `fast` decodes what
    is reduced to a half or less at a smaller size. `interpolation` is the resize filter: bilinear, bicubic, nearest,
    box, hamming, lanczos, or random (bilinear or bicubic, drawn for each sample)."""
    if interpolation not in FILTERS:
        raise ValueError(f"interpolation is one of {', '.join(FILTERS)}, not '{interpolation}'")
    height, width = _pair(size)
    p: dict[str, Any] = {"rgb": 1, "planar": int(channels_first), "to_float": int(floats), "fast": int(fast)}
    p["filter"] = FILTERS[interpolation]
    if train:
        p.update(crop=CROP_RANDOM_RESIZED, height=height, width=width, flip=0.5 if flip is None else float(flip))
        p.update(scale_min=scale[0], scale_max=scale[1], ratio_min=ratio[0], ratio_max=ratio[1])
    else:
        shorter = resize if resize is not None else int(min(height, width) / 0.875 + 0.5)
        p.update(shorter_side=shorter, last_crop=CROP_CENTER, last_height=height, last_width=width)
        if flip:
            p["flip"] = float(flip)
    if mean is not None or std is not None:
        if not floats:
            raise ValueError("mean and std need floats")
        p["mean"], p["stdev"] = list(mean or (0.0,) * 3), list(std or (1.0,) * 3)
        if len(p["mean"]) != 3 or len(p["stdev"]) != 3:
            raise ValueError("mean and std have three values, one for each channel")
    return p


def recipe(pictures: dict[str, Any] | None) -> dict[str, Any] | None:
    """The parameters of a `pictures` option, whose keys are those of plain_parameters."""
    if pictures is None:
        return None
    known = plain_parameters.__code__.co_varnames[: plain_parameters.__code__.co_argcount]
    unknown = sorted(set(pictures) - set(known))
    if unknown or "size" not in pictures:
        what = f"pictures has no option '{unknown[0]}'" if unknown else "pictures needs a 'size'"
        raise ValueError(f"{what}; it knows {', '.join(known)}")
    if min(_pair(pictures["size"])) < 1:
        raise ValueError(f"pictures['size'] must be at least 1, not {pictures['size']}")
    return plain_parameters(**pictures)


def has_fixed_size(p: dict[str, Any]) -> bool:
    """Are all results equally large?"""
    return bool(
        p.get("height")
        or p.get("last_crop")
        or (p.get("crop") in (CROP_CENTER, CROP_RANDOM) and not p.get("shorter_side"))
    )


def find_manifest(path: str) -> str | None:
    """The manifest at or in `path`, as the C library finds it; None: it is a plain folder."""
    if os.path.isfile(path):
        return path
    for name in ("manifest.mrm", os.path.join("train", "manifest.mrm")):
        if os.path.isfile(os.path.join(path, name)):
            return path
    return None
