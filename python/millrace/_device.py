"""Pictures decoded on a device, beside the CPUs or instead of them.

The native loader leaves the last rows of a batch as stored, inside the batch's own memory (`leave_stored`). A thread
takes batches from it, hands those rows to the decoder that torchvision carries (nvJPEG on CUDA), and makes of them
what the loader would have made: the crop and the flip of (seed, epoch, sample), resized with the same filter. That is
one launch of a kernel for all rows of a batch (_kernel.py), since a training beside it needs the interpreter to
launch its own. Without the kernel it is two products of matrices, rows of weights times pixels times columns of
weights, with torch's own operators."""

import contextlib
import os
import threading
from array import array
from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Any, NamedTuple

import torch

from . import _kernel, _pictures

_PIXELS = 1 << 24  # of source pictures that are resized at a time
_READY = 2  # batches made ahead
FILTERS = [_pictures.FILTERS[name] for name in ("bilinear", "bicubic", "random")]
PLAN = 18  # numbers in a plan of the native loader


def decode_jpegs(data: list[torch.Tensor], device: torch.device) -> list[torch.Tensor]:
    """Pictures (3, height, width) of JPEG files. Tests put their own here."""
    from torchvision.io import ImageReadMode, decode_jpeg

    return decode_jpeg(data, ImageReadMode.RGB, device=device)


def why_not(device: torch.device | None) -> str | None:
    """Why pictures cannot be decoded on this device; None: they can. Tests put their own here."""
    if device is None or device.type != "cuda":
        return "it needs device='cuda'"
    try:
        import torchvision.io  # noqa: F401

        _ = torch.ops.image.decode_jpegs_cuda
    except Exception:
        return "there is no torchvision that decodes lists of JPEG files on CUDA (0.20 and later do)"
    return None


class Stored(NamedTuple):
    """Rows of a batch that are files still."""

    rows: list[int]
    data: list[torch.Tensor]
    samples: list[int]
    epoch: int


# ---- resizing ----


def _weights(p: Any, which: int, n: int, taps: int, mirrored: Any, cubics: bool) -> torch.Tensor:
    """(pictures, n, taps): how much of each source pixel is in each pixel of the result; nothing in those that are
    padding. `p` has the columns of plans, those of rows at `which` 0 and of columns at 1."""
    at, start, length, to, first, place_at, seen = (p[i + which].view(-1, 1, 1) for i in (0, 4, 6, 8, 10, 13, 15))
    device = p.device
    place = torch.arange(n, device=device, dtype=torch.float32).view(1, n, 1)
    if mirrored is not None:
        place = torch.where(mirrored.view(-1, 1, 1) > 0, n - 1 - place, place)
    place = place - place_at
    scale, begin = length / to, start - at
    middle = begin + (first + place + 0.5) * scale
    pixel = torch.arange(taps, device=device, dtype=torch.float32).view(1, 1, taps)
    x = ((pixel + 0.5 - middle) / scale.clamp(min=1)).abs_()
    weight = (1 - x).clamp_(min=0)
    if cubics:
        near, far = (1.5 * x - 2.5) * x * x + 1, ((x - 5) * x + 8) * x * -0.5 + 2
        cubic = torch.where(x < 1, near, far).mul_(x < 2)
        weight = torch.where(p[17].view(-1, 1, 1) == 1, cubic, weight)
    weight.mul_((pixel >= begin) & (pixel < begin + length) & (place >= 0) & (place < seen))
    return weight / weight.sum(2, keepdim=True).clamp_(min=1e-6)


def _up(n: int) -> int:
    return (n + 7) // 8 * 8


def _resize_some(images: Sequence[torch.Tensor], plans: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    device, n = images[0].device, len(images)
    kind = torch.float16 if device.type == "cuda" else torch.float32  # 8-bit values and weights lose nothing that shows
    needs = plans[:, :4].tolist()
    high, wide = _up(max(need[2] for need in needs)), _up(max(need[3] for need in needs))
    source = torch.zeros(n, high, 3, wide, dtype=kind, device=device)
    for i, (top, left, height, width) in enumerate(needs):
        source[i, :height, :, :width].copy_(images[i][:, top : top + height, left : left + width].permute(1, 0, 2))
    p = plans.to(device, torch.float32, non_blocking=True).t()
    cubics = bool((plans[:, 17] == 1).any())
    rows = _weights(p, 0, size[0], high, None, cubics).to(kind)
    columns = _weights(p, 1, size[1], wide, p[12], cubics).to(kind)
    half = torch.bmm(rows, source.view(n, high, 3 * wide)).view(n, size[0] * 3, wide)
    return torch.bmm(half, columns.transpose(1, 2)).view(n, size[0], 3, size[1])


def resize(images: Sequence[torch.Tensor], plans: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """(pictures, height, 3, width), not rounded, of pictures (3, height, width) and plans (pictures, PLAN) of the
    native loader."""
    out, begin, most = [], 0, 0
    for i, plan in enumerate(plans.tolist()):
        here = _up(plan[2]) * _up(plan[3])
        if i > begin and max(most, here) * (i + 1 - begin) > _PIXELS:
            out.append(_resize_some(images[begin:i], plans[begin:i], size))
            begin, most = i, 0
        most = max(most, here)
    out.append(_resize_some(images[begin:], plans[begin:], size))
    return out[0] if len(out) == 1 else torch.cat(out)


# ---- how many ----


def threads(wanted: int) -> int:
    """How many CPUs decode beside a device: two are left to the training and to the thread that feeds the device."""
    here = len(os.sched_getaffinity(0))
    return min(wanted or here, max(1, here - 2)) if here > 4 else wanted


class Share:
    """How many rows of a batch the device decodes: none at first. Where the thread waits for the CPUs it takes more,
    as many as make both equally long if all goes on as it went; else, where the training does not keep up, far fewer,
    since the device has better to do; and where the thread is busy all the time, a little fewer. It decides once in as
    many batches as it takes for a change to arrive."""

    FIRST = 0.0  # of a batch

    def __init__(self, batch: int, lookahead: int, adapts: bool) -> None:
        self.batch, self.adapts = batch, adapts
        self.rows = int(self.FIRST * batch) if adapts else batch
        self._every, self._seen = lookahead + 2, 0
        self._waited = self._worked = self._blocked = 0.0
        self.waited = self.worked = self.blocked = 0.0  # seconds over the loader's life

    def _more(self) -> int:
        """Rows that are lacking, when the CPUs are the limit."""
        if not self.rows or self.rows == self.batch:
            return self.batch // 4
        cpu, device = (self._waited + self._worked) / (self.batch - self.rows), self._worked / self.rows
        return min(self.batch // 4, int(0.7 * (self.batch * cpu / (cpu + device) - self.rows)))

    def add(self, waited: float, worked: float, blocked: float) -> bool:
        """After a batch: seconds waited for the CPUs, at work, and until somebody took it. True: `rows` has changed."""
        self._seen += 1
        self.waited, self.worked, self.blocked = self.waited + waited, self.worked + worked, self.blocked + blocked
        self._waited, self._worked, self._blocked = (
            self._waited + waited,
            self._worked + worked,
            self._blocked + blocked,
        )
        if not self.adapts or self._seen < self._every:
            return False
        total = self._waited + self._worked + self._blocked
        step = max(1, self.batch // 32)
        if self._waited > 0.1 * total:
            step = max(step, self._more())
        elif self._blocked > 0.2 * total:
            step = -max(step, self.rows // 3)
        elif self._waited < 0.05 * total:
            step = -step
        else:
            step = 0
        before, self.rows = self.rows, min(self.batch, max(0, self.rows + step))
        self._waited = self._worked = self._blocked = 0.0
        self._seen = 0
        return self.rows != before


# ---- the thread ----


class Pipeline:
    """Batches of one epoch, made ahead in a thread. `take` returns False while there is none, None when it ends with
    the exception in `wait_and_make`, else what it made and the seconds that it waited and worked."""

    def __init__(self, wait_and_make: Any, share: Share, apply: Any) -> None:
        self._make, self._share, self._apply = wait_and_make, share, apply
        self._ready: deque[Any] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="millrace-decode", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        item: Any = False
        while item is not None and not self._ended:
            try:
                item, waited, worked = self._make()
            except BaseException as e:  # raised where it is taken
                item, waited, worked = None, 0.0, 0.0
                self._put((None, e))
                return
            if item is False:
                continue
            begin = perf_counter()
            self._put((item, None))
            if item is not None and self._share.add(waited, worked, perf_counter() - begin):
                self._apply(self._share.rows)

    def _put(self, pair: Any) -> None:
        with self._changed:
            while len(self._ready) >= _READY and not self._ended:
                self._changed.wait()
            self._ready.append(pair)
            self._changed.notify_all()

    def get(self) -> Any:
        """The next batch; None at the end."""
        with self._changed:
            while not self._ready:
                if self._ended:
                    return None
                self._changed.wait(0.1)  # in slices: Ctrl-C is looked at in between
            item, error = self._ready.popleft()
            self._changed.notify_all()
        if error is not None:
            raise error
        return item

    def close(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()
        self._ready.clear()


class Decoder:
    """Decodes stored rows of batches into their places."""

    def __init__(self, device: torch.device, size: tuple[int, int], planar: bool) -> None:
        self.device, self.size, self.planar = device, size, planar
        self._kernel, self.why_no_kernel = (
            _kernel.resizer(device) if device.type == "cuda" else (None, "it is no CUDA device")
        )
        self._held: deque[Any] = (
            deque()
        )  # what the device may still be reading; freed too early, torchvision would write into it

    def _release(self, most: int) -> None:
        while self._held and (len(self._held) > most or self._held[0][0].query()):
            self._held.popleft()[0].synchronize()

    def fill(self, data: torch.Tensor, stored: Stored, plans_of: Any) -> None:
        """Overwrites the stored rows of `data`, a batch of bytes on the device."""
        self._release(3)
        images = decode_jpegs(stored.data, self.device)
        shapes = [image.shape for image in images]
        plans = plans_of(stored, [n for shape in shapes for n in shape[1:]])
        if self._kernel is not None:
            images = [image.contiguous() for image in images]  # they are, of nvJPEG
            facts = array(
                "q", [n for image, shape in zip(images, shapes) for n in (image.data_ptr(), shape[1], shape[2])]
            )
            pictures = self._there(torch.frombuffer(facts, dtype=torch.int64))
            self._kernel(
                data,
                pictures,
                self._there(plans),
                self._there(torch.tensor(stored.rows, dtype=torch.int32)),
                self.size,
                self.planar,
            )
        else:
            self._by_operators(data, images, plans, stored.rows)
        if self.device.type == "cuda":
            event = torch.cuda.Event()
            event.record()
            self._held.append((event, images, stored))

    def _there(self, facts: torch.Tensor) -> torch.Tensor:
        return facts.to(self.device, non_blocking=True)

    def _by_operators(
        self, data: torch.Tensor, images: Sequence[torch.Tensor], plans: torch.Tensor, rows: list[int]
    ) -> None:
        made = resize(images, plans, self.size)
        made = made.permute(0, 2, 1, 3) if self.planar else made.permute(0, 1, 3, 2)
        made = made.add(0.5).clamp_(0, 255).to(torch.uint8)
        if rows[-1] - rows[0] + 1 == len(rows):
            data[rows[0] : rows[-1] + 1].copy_(made)
        else:
            data.index_copy_(0, torch.tensor(rows, device=self.device), made)


def on_stream(stream: Any) -> Any:
    return torch.cuda.stream(stream) if stream is not None else contextlib.nullcontext()
