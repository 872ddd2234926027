"""A drop-in for torch.utils.data.DataLoader.

    from millrace.torch import DataLoader

    dataset = torchvision.datasets.ImageFolder("/data/imagenet/train", transform)
    loader = DataLoader(dataset, batch_size=256, shuffle=True, num_workers=16, device="cuda")
    for epoch in range(90):
        for images, labels in loader:
            ...

Given a path (a folder of class folders, or a data set with a manifest), or a torchvision ImageFolder or DatasetFolder whose
transforms are known, everything runs in C threads without Python: reading, decoding of only the part of a JPEG that a crop
needs, one pass for resize, flip, normalisation and layout. The order is torch's own, drawn from the same sampler and
generator; pictures differ from torchvision's by the rounding of the resize only. What is random (crop, flip) is a function of
(seed, epoch, sample): it does not depend on threads, ranks or resuming.

Where only the first transforms are known, those are native and the others are called; given anything else it works by calling it, in torch's own
worker processes or in threads. It says once what is called and why.
"""
import atexit
import os
import warnings
import weakref
from array import array
from time import perf_counter
from typing import Any, Callable, Dict, Iterator, List, Optional, Union

import torch
from torch.utils.data import BatchSampler, Dataset, IterableDataset, RandomSampler, SequentialSampler
from torch.utils.data import DataLoader as _TorchLoader
from torch.utils.data.distributed import DistributedSampler

from . import _called, _core, _device, _pictures
from ._engine import Engine, padded
from ._order import Order
from ._pictures import NotNative
from ._sources import Length, Tokens, dataset_source, path_source
from ._split import Split
from ._torch_save import load, save, wait
from ._watch import Watch

__all__ = ["DataLoader", "Tokens", "load", "save", "wait"]

STATE_VERSION = 1
_SPARE = 3  # batches that a program holds: the one it works on, the one before, and one it keeps (a first batch to look at)
_said_distributed = False
_open_loaders: "weakref.WeakSet[DataLoader]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for loader in list(_open_loaders):
        loader.close()


class _Iterator:
    """Batches of one epoch. Holds an engine until the epoch ends or nobody wants it any more."""

    def __init__(self, owner: "DataLoader", engine: Engine, n_batches: int, first: int) -> None:
        self._owner, self._engine = owner, engine
        self._given, self._last, self._tail = first, n_batches, owner._order.tail
        if self._tail is not None:
            self._tail.delivered(first)
        self._staged: Any = None
        self._done = False
        self._pipeline = owner._pipeline(engine)
        ahead = owner._places + (2 if self._pipeline is not None else 0)
        self._announce_at = max(1, n_batches - ahead)

    def __iter__(self) -> "_Iterator":
        return self

    def __len__(self) -> int:
        return self._last - self._given

    def _finish(self) -> None:
        if not self._done:
            self._done = True
            if self._pipeline is not None:
                self._pipeline.close()
            self._owner._give_back(self._engine)

    def __del__(self) -> None:
        try:
            self._finish()
        except Exception:  # at the interpreter's end
            pass

    def _fetch(self, timeout_ns: int = -1) -> Any:
        if self._pipeline is not None:
            return self._pipeline.get()
        got = self._engine.next(timeout_ns)
        return self._owner._to_device(got) if got else got

    def __next__(self) -> Any:
        if self._done:
            raise StopIteration
        owner = self._owner
        item, self._staged = self._staged, None
        begin = perf_counter()
        try:
            if item is None:
                item = self._fetch()
            if item is None:
                owner._end_epoch()
                if self._tail is not None:
                    self._tail.delivered(self._last + 1)
                self._finish()
                raise StopIteration
            if owner._stream is not None and self._pipeline is None:
                self._staged = self._fetch(0) or None  # the copy of the next one runs while the caller works
            item = owner._from_device(item)
        except StopIteration:
            raise
        except BaseException:
            self._finish()
            raise
        now = perf_counter()
        owner._watch.add(now - begin, now, owner._counters)
        self._given += 1
        if self._tail is not None:
            self._tail.delivered(self._given)
        owner._delivered(self._given)
        if self._given == self._announce_at:
            owner._announce(self._engine)
        return item


class DataLoader:
    """Batches of samples, in torch's order; see the module's text for what runs natively.

    dataset         a path, or a Dataset
    batch_size, shuffle, sampler, batch_sampler, drop_last, generator, collate_fn, worker_init_fn, timeout
                    as torch's
    num_workers     threads of the native loader, 0: as many as there are CPUs; workers where it is not possible
    workers         what those are: "processes", torch's, or "threads" of this process, which call the data set sample by sample
    pin_memory      batches lie in pinned memory of torch's
    prefetch_factor batches read ahead (3)
    transform       for a path: a torchvision transform (v1 or v2)
    device          where batches are to be: the copy runs on a stream of its own, one batch ahead
    seed            of crops and flips; default: the generator's, or torch's initial seed
    on_error        "raise", or "skip": samples that cannot be decoded are left out of their batch; see `skipped`
    uint8_transfer  with device: pictures travel as bytes and are normalised there
    channels_last   pictures have torch.channels_last strides
    structure       of a native batch: None, a list as torch's, [data, labels], or data where there are no labels; "tuple": the same
                    as a tuple; "dict": {"data": ..., "label": ...}
    variable        samples that differ in shape: "list", one tensor each; "pad": one tensor, as large as the largest, zeros behind
                    the others, and their shapes as another part ("shape" in a dict) behind the labels
    decode          "cpu"; "gpu": JPEG pictures are decoded, cut and resized on the device, with the nvJPEG that torchvision carries;
                    "hybrid": shared by both, as much on the device as keeps the CPUs from being waited for. Needs device="cuda"
                    and transforms to one size; implies uint8_transfer. Two CPUs are left to the training, also where num_workers says more
    fast            JPEG pictures that are reduced to a half or less are decoded at 1/2, 1/4 or 1/8 of their size: quicker, and a
                    little different
    distributed     without a sampler, where RANK and WORLD_SIZE are set (torchrun): each rank reads its part, as with torch's
                    DistributedSampler and set_epoch. False: all of it
    tiers           keep stored bytes near from epoch to epoch: "ram=2GiB,ssd=/nvme/cache:100GiB", or "auto" (doc/tiers.md). The order is then
                    that of a DistributedSampler, a function of seed, epoch and rank; ranks of torchrun share a node's tiers
    policy          which policy decides what is kept ("millrace"); peers: do nodes ask each other ("auto", "on", "off")
    epochs          how many epochs will be read, where it is known: tiers plan for them
    native          True: what cannot run natively is an error; False: the data set is called as torch would call it, with torch's random numbers
    warn_after      seconds after which a loop that waits more than 5 % of them is told why, once; 0: never

    After the first epoch has begun nothing can be changed. `close()` ends the threads; so does dropping the loader.
    """

    def __init__(
        self,
        dataset: Union[str, "os.PathLike[str]", Dataset],
        batch_size: Optional[int] = 1,
        shuffle: Optional[bool] = None,
        sampler: Optional[Any] = None,
        batch_sampler: Optional[Any] = None,
        num_workers: int = 0,
        collate_fn: Optional[Callable[[List[Any]], Any]] = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Optional[Callable[[int], None]] = None,
        multiprocessing_context: Any = None,
        generator: Optional[torch.Generator] = None,
        *,
        prefetch_factor: Optional[int] = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Any = None,
        device: Union[None, str, torch.device] = None,
        seed: Optional[int] = None,
        on_error: str = "raise",
        uint8_transfer: bool = False,
        channels_last: bool = False,
        workers: str = "processes",
        structure: Optional[str] = None,
        variable: str = "list",
        decode: str = "cpu",
        fast: bool = False,
        distributed: Optional[bool] = None,
        tiers: Optional[str] = None,
        policy: Optional[str] = None,
        peers: str = "auto",
        epochs: Optional[int] = None,
        native: Optional[bool] = None,
        warn_after: float = 60.0,
    ) -> None:
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error is 'raise' or 'skip', not '{on_error}'")
        if workers not in ("processes", "threads"):
            raise ValueError(f"workers is 'processes' or 'threads', not '{workers}'")
        if structure not in (None, "tuple", "dict"):
            raise ValueError(f"structure is None, 'tuple' or 'dict', not '{structure}'")
        if variable not in ("list", "pad"):
            raise ValueError(f"variable is 'list' or 'pad', not '{variable}'")
        if decode not in ("cpu", "gpu", "hybrid"):
            raise ValueError(f"decode is 'cpu', 'gpu' or 'hybrid', not '{decode}'")
        if num_workers < 0 or timeout < 0 or (prefetch_factor is not None and prefetch_factor < 1):
            raise ValueError("num_workers and timeout must be at least 0, prefetch_factor at least 1")
        self.num_workers, self.collate_fn, self.drop_last = num_workers, collate_fn, drop_last
        self.pin_memory, self.timeout, self.generator = pin_memory, timeout, generator
        self.prefetch_factor, self.worker_init_fn = prefetch_factor, worker_init_fn
        self.persistent_workers, self.multiprocessing_context = persistent_workers, multiprocessing_context
        self.in_order, self.on_error, self.decode, self.pin_memory_device = in_order, on_error, decode, pin_memory_device
        self.workers, self.structure, self.variable = workers, structure, variable
        self._start = 0  # with tiers: where in the epoch, counted over all ranks, other numbers of ranks left off
        self._tiers: Dict[str, Any] = {}  # what the native loader is told of them
        if tiers is not None or policy is not None:
            self._tiers = dict(tiers=tiers, policy=policy, peers=peers, last_epoch=-1 if epochs is None else max(0, epochs - 1))
        self._calls: Any = None  # who calls a data set that is not native
        self.device = torch.device(device) if device is not None else None
        self.reason: Optional[str] = None  # why the native loader is not used
        self._source: Any = None
        self._split: Any = None  # (source, parts): where only the first transforms are native
        self._engines: List[Engine] = []
        self._idle: List[Engine] = []  # those of them that no iterator has
        self._epoch, self._in_epoch, self._delivered_batches = 0, False, 0
        self._resume: Optional[Dict[str, Any]] = None
        self._chain: List[Any] = []  # see Order.rest
        self._skipped = 0
        self._bad_there: List[str] = []  # why samples that a device was to decode, or that were called, were left out
        self._stream: Any = None
        self._share: Optional[_device.Share] = None  # with decoding on a device
        self._torch: Optional[_TorchLoader] = None
        self._own_sampler = False  # made here, by the environment
        self._watch = Watch(warn_after)
        if isinstance(dataset, IterableDataset):
            self.dataset = dataset
            self._iterable(batch_size, shuffle, sampler, batch_sampler)
            return
        parameters = self._find_source(dataset, transform, collate_fn, batch_size, sampler, batch_sampler, native)
        source = self._source or (self._split[0] if self._split else None)
        self.dataset = Length(source.n) if isinstance(dataset, (str, os.PathLike)) else dataset
        if native and not self.native:
            raise NotImplementedError(f"native=True, but {self.reason}")
        if sampler is None and batch_sampler is None:
            sampler, shuffle = self._by_environment(shuffle, seed, distributed)
        self._make_samplers(batch_size, shuffle, sampler, batch_sampler)
        self._order = Order(self.sampler, self.batch_sampler, generator, num_workers, persistent_workers, prefetch_factor or 2)
        if self._tiers:
            seed = self._order_for_tiers()
        if seed is None:
            seed = generator.initial_seed() if generator is not None else torch.initial_seed()
        self.seed = seed & 0xFFFFFFFFFFFFFFFF
        if self._source is None:
            self._prepare_calls(dict(decode=decode != "cpu", uint8_transfer=uint8_transfer, fast=fast, channels_last=channels_last, structure=structure, variable=variable != "list"))
            return
        self._prepare(parameters, uint8_transfer or decode != "cpu", channels_last, fast)
        _open_loaders.add(self)

    # ---- construction ----

    def _find_source(
        self, dataset: Any, transform: Any, collate_fn: Any, batch_size: Any, sampler: Any, batch_sampler: Any, native: Optional[bool]
    ) -> Optional[Dict[str, Any]]:
        """Sets the native source, or the reason why there is none; returns what is to be done with pictures."""
        is_path = isinstance(dataset, (str, os.PathLike))
        if not is_path and transform is not None:
            raise ValueError("`transform` goes with a path; a Dataset has its own")
        try:
            if batch_size is None and batch_sampler is None:
                raise NotNative("batch_size=None asks for single samples")
            if native is False and not is_path:
                raise NotNative("native=False asks for it")
            if any(s is not None and not hasattr(s, "__len__") for s in (sampler, batch_sampler)):
                raise NotNative("the sampler has no length")
            if is_path:
                _pictures.split_transform(transform)
                source = path_source(os.fspath(dataset))
            else:
                source, transform = dataset_source(dataset)
            parts = _pictures.split_transform(transform)
            why = parts.why if parts.rest else "there is a collate_fn" if collate_fn not in (None, torch.utils.data.default_collate) else None
            if why is None and batch_sampler is not None and type(batch_sampler) is not BatchSampler:
                why = f"batches come from a '{type(batch_sampler).__name__}'"
            if why is None:
                self._source = source
                return parts.parameters if transform is not None or source.classes else None
            if self.workers == "threads" or source.unpack is not None:
                raise NotNative(why)
            if transform is None and not source.classes:
                parts = parts._replace(parameters=None)
            self._split, self.reason = (source, parts), why
        except NotNative as why:
            if is_path:
                raise NotImplementedError(f"'{os.fspath(dataset)}' cannot be loaded natively: {why}") from None
            self.reason = str(why)
        return None

    def _who(self) -> str:
        if self.workers == "threads":
            return f"in {max(1, self.num_workers)} threads"
        plural = "es" if self.num_workers > 1 else ""
        return f"in {self.num_workers} worker process{plural}" if self.num_workers else "in the loop itself (num_workers=0)"

    def _say_reason(self, ignored: str = "") -> None:
        what = "the data set is read by calling it"
        if self._split:
            called = [type(t).__name__ for t in self._split[1].rest]
            what = "reading, decoding and the first transforms are native, " + (", ".join(called) + (" is" if len(called) == 1 else " are") + " called" if called else "batches are put together")
        warnings.warn(f"millrace.torch: {what}, {self._who()}, because {self.reason}{ignored}", stacklevel=4)

    def _prepare_calls(self, wanted: Dict[str, Any]) -> None:
        """For a data set that is not native, or not all of it; `wanted` are options that only native batches know."""
        if wanted.pop("decode"):
            raise NotImplementedError(f"decode='{self.decode}' is not possible here: {self.reason}")
        names = [name for name, value in wanted.items() if value]
        self._say_reason(f"; without effect then: {', '.join(names)}" if names else "")
        skip = self.on_error == "skip"
        self._called_set = self.dataset
        if self._split:
            self._called_set = Split(*self._split, self.seed, not self.num_workers, skip)
        elif skip and self.workers == "processes":
            self._called_set = _called.Skipping(self.dataset)
        if self.batch_size is None or not hasattr(self.sampler, "__len__"):
            if skip:
                raise NotImplementedError(f"on_error='skip' is not possible here: {self.reason}")
            batching = dict(batch_sampler=self.batch_sampler) if self.batch_size is not None else dict(batch_size=None, sampler=self.sampler)
            self._torch = self._torch_loader(generator=self.generator, **batching)

    def _by_environment(self, shuffle: Any, seed: Optional[int], wanted: Optional[bool]) -> "tuple[Any, Any]":
        """(sampler, shuffle): what a program that torchrun started would pass."""
        try:
            rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        except (KeyError, ValueError):
            if self._tiers and not wanted and self._source is not None:
                self._own_sampler = True
                return DistributedSampler(self.dataset, 1, 0, shuffle=bool(shuffle), seed=seed or 0), None
            if wanted:
                raise ValueError("distributed=True wants numbers in the environment's RANK and WORLD_SIZE, as torchrun sets them") from None
            return None, shuffle
        if wanted is False or world < 2:
            return None, shuffle
        if wanted is None:
            global _said_distributed
            if not _said_distributed:
                _said_distributed = True
                warnings.warn(
                    f"millrace.torch: rank {rank} of {world} (RANK and WORLD_SIZE) reads its part of the data, in DistributedSampler's order; "
                    "distributed=False reads all of it, distributed=True says nothing",
                    stacklevel=4,
                )
        self._own_sampler = True
        return DistributedSampler(self.dataset, world, rank, shuffle=bool(shuffle), seed=seed or 0), None

    def _make_samplers(self, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
        """As torch.utils.data.DataLoader does."""
        if batch_sampler is not None:
            if batch_size not in (None, 1) or shuffle or sampler is not None or self.drop_last:
                raise ValueError("batch_sampler excludes batch_size, shuffle, sampler and drop_last")
            self.batch_sampler = batch_sampler
            self.sampler = getattr(batch_sampler, "sampler", batch_sampler)
            self.batch_size = getattr(batch_sampler, "batch_size", None)
            self.drop_last = getattr(batch_sampler, "drop_last", False)
            return
        if sampler is not None and shuffle:
            raise ValueError("sampler excludes shuffle")
        if batch_size is not None and (not isinstance(batch_size, int) or batch_size < 1):
            raise ValueError(f"batch_size must be a whole number of at least 1, not {batch_size!r}")
        if sampler is None:
            sampler = RandomSampler(self.dataset, generator=self.generator) if shuffle else SequentialSampler(self.dataset)
        self.sampler, self.batch_size = sampler, batch_size
        self.batch_sampler = BatchSampler(sampler, batch_size, self.drop_last) if batch_size is not None else None

    def _order_for_tiers(self) -> int:
        """Adds the order to what the native loader is told, which has to know it for all epochs; returns its seed."""
        sampler = self.sampler
        if self._source is None:
            raise NotImplementedError(f"tiers need a data set that is read natively: {self.reason}")
        if type(sampler) is not DistributedSampler:
            raise NotImplementedError(f"tiers need an order that is a function of seed and epoch: no sampler, or torch's DistributedSampler, not '{type(sampler).__name__}'")
        if self._source.ids is not None and any(i != k for k, i in enumerate(self._source.ids)):
            raise NotImplementedError("tiers need all files of a data set, in the order of their names")
        self._tiers.update(order="torch" if sampler.shuffle else "sequential", rank=sampler.rank, world=sampler.num_replicas, drop_last_samples=sampler.drop_last)
        return sampler.seed

    def _prepare(self, parameters: Optional[Dict[str, Any]], uint8_transfer: bool, channels_last: bool, fast: bool) -> None:
        """What native loaders of this object are made with."""
        cuda = self.device is not None and self.device.type == "cuda"
        if cuda and not torch.cuda.is_available():
            raise RuntimeError(f"device='{self.device}', but PyTorch sees no CUDA device here (torch.cuda.is_available() is False): leave `device` out, or look at the driver")
        if cuda:
            self._stream = torch.cuda.Stream(self.device, priority=-1)  # short work that a training waits for
        self._pins = torch.cuda.is_available() and (self.pin_memory or cuda)
        self._normalise: Any = None
        self._channels_last = channels_last and parameters is not None
        if parameters is not None:
            parameters = dict(parameters, fast=int(fast))
            if self._channels_last:
                parameters["planar"] = 0
            if uint8_transfer and self.device is not None and parameters["to_float"]:
                mean, stdev = parameters.pop("mean", [0.0] * 3), parameters.pop("stdev", [1.0] * 3)
                parameters["to_float"] = 0
                scale = torch.tensor([1 / (255 * s) for s in stdev], device=self.device).view(1, 3, 1, 1)
                bias = torch.tensor([-m / s for m, s in zip(mean, stdev)], device=self.device).view(1, 3, 1, 1)
                self._normalise = scale, bias
            if self._pins and not _pictures.has_fixed_size(parameters):
                self._pins = False
        flags = _core.DENSE | (_core.SKIP_BAD if self.on_error == "skip" else 0)
        self._places = (self.prefetch_factor or 3) + 1
        self._core_options = dict(
            batch_size=self.batch_size,
            threads=self.num_workers if self.decode == "cpu" else _device.threads(self.num_workers),
            lookahead=self._places - 1,
            spare=0 if self._pins else _SPARE,
            drop_last=bool(self.drop_last),
            flags=flags,
            seed=self.seed,
            preprocess=parameters,
            **self._tiers,
        )
        if self.decode != "cpu":
            self._decode_there(parameters)
        self._idle.append(self._new_engine())  # now, so that what is wrong is said here

    def _decode_there(self, parameters: Optional[Dict[str, Any]]) -> None:
        why = _device.why_not(self.device)
        if why is None and (parameters is None or not _pictures.has_fixed_size(parameters)):
            why = "it needs pictures and a transform that makes them equally large"
        if why is None and any(parameters.get("fill", [0])):
            why = "it pads with 0 only"
        if why is None and parameters.get("filter", 0) not in _device.FILTERS:
            why = "it resizes bilinear and bicubic only"
        if why is not None:
            raise NotImplementedError(f"decode='{self.decode}' is not possible here: {why}")
        self._share = _device.Share(self.batch_size, self._places - 1, self.decode == "hybrid")
        size = (parameters.get("last_height") or parameters["height"], parameters.get("last_width") or parameters["width"])
        self._decoder = _device.Decoder(self.device, size, bool(parameters["planar"]))

    def _new_engine(self) -> Engine:
        if self._tiers and self._engines:
            raise RuntimeError("a loader with tiers has one iteration at a time")
        engine = Engine(self)
        self._engines.append(engine)
        if self._share is not None:
            engine.core.leave_stored(self._share.rows)
        return engine

    def _pipeline(self, engine: Engine) -> Optional[_device.Pipeline]:
        """The thread that makes an epoch's batches, where a device decodes."""
        if self._share is None:
            return None

        def make() -> Any:
            begin = perf_counter()
            got = engine.next(50_000_000)
            waited = perf_counter()
            item = self._to_device(got, engine) if got else got
            return item, waited - begin, perf_counter() - waited

        return _device.Pipeline(make, self._share, engine.core.leave_stored)

    def _iterable(self, batch_size: Any, shuffle: Any, sampler: Any, batch_sampler: Any) -> None:
        if shuffle or sampler is not None or batch_sampler is not None:
            raise ValueError("an IterableDataset excludes shuffle, sampler and batch_sampler")
        self.sampler = self.batch_sampler = None
        self.batch_size, self.seed = batch_size, 0
        self.reason = "it is an IterableDataset"
        if self.workers == "threads":
            raise ValueError("an IterableDataset is read by processes: workers='threads' needs a data set with numbered samples")
        if self.on_error == "skip" or self.decode != "cpu":
            raise NotImplementedError("on_error='skip' and decode are not possible with an IterableDataset")
        self._say_reason()
        self._called_set = self.dataset
        self._torch = self._torch_loader(batch_size=batch_size, drop_last=self.drop_last, generator=self.generator)

    def _torch_loader(self, **batching: Any) -> _TorchLoader:
        more: Dict[str, Any] = {}
        if self.num_workers:
            more = dict(
                prefetch_factor=self.prefetch_factor or 2,
                multiprocessing_context=self.multiprocessing_context,
                persistent_workers=self.persistent_workers,
            )
        return _TorchLoader(
            self._called_set,
            num_workers=self.num_workers,
            collate_fn=_called.Telling(self.collate_fn) if self.on_error == "skip" else self.collate_fn,
            pin_memory=self.pin_memory,
            timeout=self.timeout,
            worker_init_fn=self.worker_init_fn,
            **more,
            **batching,
        )

    # ---- epochs ----

    @property
    def native(self) -> bool:
        """Does everything run in C threads? `reason` says why not."""
        return self._source is not None

    @property
    def classes(self) -> List[str]:
        """Names of the classes of a folder of pictures."""
        source = self._source or (self._split[0] if self._split else None)
        return source.classes if source else getattr(self.dataset, "classes", [])

    def __len__(self) -> int:
        return len(self._torch) if self._torch is not None else len(self.batch_sampler)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is that of epoch `epoch`: for the crops and flips, and for a sampler that has set_epoch."""
        if self._resume is not None and self._resume["epoch"] != epoch:
            self._resume = None
        self._epoch, self._in_epoch = epoch, self._resume is not None
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        if self._torch is not None:
            return self._iter_iterable()
        source = self._source or (self._split[0] if self._split else None)
        if source is not None and any(data.transform is not transform for data, transform in source.seen):
            raise RuntimeError("the data set's transform was changed after the loader was made: make a new loader")
        resume, self._resume = self._resume, None
        self._chain, self._start = [], 0
        if not resume and self._in_epoch and self._delivered_batches >= len(self):
            self._end_epoch()  # all of it was delivered, to somebody who did not ask for the end (zip)
        if resume:
            indices, first = self._resumed(resume)
        else:
            if self._own_sampler:
                self.sampler.set_epoch(self._epoch)
            indices, first = self._order.draw(), 0
        self._delivered_batches, self._in_epoch = first, True
        self._watch.resume(self._counters)
        if resume and not indices[first * (self.batch_size or 1) :]:  # saved behind the last batch
            if self._order.tail is not None:
                self._order.tail.delivered(first + 1)
            self._end_epoch()
            return iter(())
        n_batches = -(-len(indices) // self.batch_size) if self.batch_size else len(self.batch_sampler)
        if self._source is None:
            return self._iter_called(indices, first)
        engine = self._idle.pop() if self._idle else self._new_engine()
        try:
            if indices[first * self.batch_size :] and self._tiers:
                engine.core.start_epoch(self.sampler.epoch, self._start + first * self.batch_size * self.sampler.num_replicas)
            elif indices[first * self.batch_size :]:
                engine.core.start_list(self._epoch, self._source.take(indices), first * self.batch_size)
            else:
                raise ValueError(self._no_batch(len(indices)))
        except BaseException:
            self._give_back(engine)
            raise
        return _Iterator(self, engine, n_batches, first)

    def _no_batch(self, n: int) -> str:
        if self.drop_last and self.batch_size > self._source.n:
            return f"the epoch has no batch: batch_size {self.batch_size} is larger than the {self._source.n} samples, and drop_last leaves the rest out"
        return f"nothing is left of the epoch of {n} samples"

    def _give_back(self, engine: Engine) -> None:
        if engine in self._engines:
            self._idle.append(engine)

    def _announce(self, engine: Engine) -> None:
        """Lets the look-ahead go on into the next epoch, whose order is drawn on trial."""
        if self._resume is None and not self._tiers and (nxt := self._order.peek()):
            engine.core.announce(self._source.take(nxt))

    def _delivered(self, batches: int) -> None:
        self._delivered_batches = batches
        if self.on_error == "skip":
            self._note_skipped()

    def _note_skipped(self) -> None:
        count = self.skipped
        if count and not self._skipped:
            told = [why for n, why in (e.core.skipped() for e in self._engines) if n] + self._bad_there
            why = told[0]
            warnings.warn(f"millrace.torch: samples that cannot be decoded are left out; the first one: {why}", stacklevel=4)
        self._skipped = count

    @property
    def skipped(self) -> int:
        """Samples left out so far with on_error="skip"."""
        return sum(e.core.skipped()[0] for e in self._engines) + len(self._bad_there)

    def _end_epoch(self) -> None:
        self._in_epoch = False
        self._epoch += 1

    def _iter_called(self, indices: List[int], first: int) -> Iterator[Any]:
        size, batches = self.batch_size, self._order.batches
        if type(self.batch_sampler) is BatchSampler:  # which may be what other ranks have left
            batches = [indices[i : i + size] for i in range(0, len(indices), size)]
        if self._calls is None:
            self._calls = self._caller()
        if self._split:
            batches = [[(self._epoch, i) for i in batch] for batch in batches]
        states = self._order.start_states
        yield from self._called(self._calls.epoch(batches[first:], states[0] if states else None), self._order.tail)

    def _caller(self) -> Any:
        if self.workers == "processes":
            return _called.Processes(self._torch_loader)
        collate = self.collate_fn or torch.utils.data.default_collate
        ahead = (self.prefetch_factor or 3) + 1
        skip = self.on_error == "skip"
        return _called.Threads(self.dataset, max(1, self.num_workers), ahead, _called.Telling(collate) if skip else collate, self.worker_init_fn, skip)

    def _iter_iterable(self) -> Iterator[Any]:
        self._in_epoch, self._delivered_batches = True, 0
        self._watch.resume(self._counters)
        yield from self._called(self._torch, None)

    def _called(self, loader: Any, tail: Any) -> Iterator[Any]:
        begin = perf_counter()
        for item in loader:
            if self.on_error == "skip":
                item, bad = item
                self._bad_there += bad
                self._note_skipped()
            item, now = self._moved(item), perf_counter()
            self._watch.add(now - begin, now, self._counters)
            self._delivered_batches += 1
            if tail is not None:
                tail.delivered(self._delivered_batches)
            yield item
            begin = perf_counter()
        if tail is not None:
            tail.delivered(self._delivered_batches + 1)
        self._end_epoch()

    # ---- what a batch looks like ----

    def _moved(self, item: Any) -> Any:
        """A batch that the data set's own code made, with its tensors where they are wanted."""
        if isinstance(item, torch.Tensor):
            if self.pin_memory and self.workers == "threads" and torch.cuda.is_available():
                item = item.pin_memory()
            return item if self.device is None else item.to(self.device, non_blocking=True)
        if isinstance(item, dict):
            return {k: self._moved(v) for k, v in item.items()}
        if isinstance(item, tuple) and hasattr(item, "_fields"):
            return type(item)(*(self._moved(v) for v in item))
        return type(item)(self._moved(v) for v in item) if isinstance(item, (list, tuple)) else item

    def _shaped(self, data: Any) -> Any:
        if not self._channels_last:
            return data
        if isinstance(data, list):
            return [row.permute(2, 0, 1) for row in data]
        return data.permute(0, 3, 1, 2)

    def _to_device(self, got: Any, engine: Optional[Engine] = None) -> Any:
        """The parts of a batch by their names, and the event behind which they are there or None: on the device, where there is one."""
        data, labels, stored = got
        parts: Dict[str, Any] = {}
        with _device.on_stream(self._stream):
            if self.variable == "pad":
                data, parts["shape"] = padded(data)
            data = self._there(data)
            if stored is not None:
                data, labels = self._decoded(data, labels, stored, engine)
            data = self._shaped(data)
            if labels is not None and self.device is not None:
                labels = (labels.pin_memory() if self._stream is not None else labels).to(self.device, non_blocking=True)
            if self._source.unpack is not None:
                data = self._source.unpack(data)
                data, labels = data if isinstance(data, list) else (data, labels)
            if self._normalise is not None:
                data = data.float().mul_(self._normalise[0]).add_(self._normalise[1])
            parts = {"data": data, **({"label": labels} if labels is not None else {}), **parts}
            if self._stream is None:
                return parts, None
            event = torch.cuda.Event()
            event.record(self._stream)
        return parts, event

    def _there(self, data: Any) -> Any:
        if self.device is None:
            return data
        return [self._there(row) for row in data] if isinstance(data, list) else data.to(self.device, non_blocking=True)

    def _from_device(self, item: Any) -> Any:
        parts, event = item
        if event is not None:
            stream = torch.cuda.current_stream(self.device)
            stream.wait_event(event)
            for part in parts.values():
                for tensor in part if isinstance(part, list) else [part]:
                    if tensor.is_cuda:
                        tensor.record_stream(stream)
        if self.structure == "dict":
            return parts
        if len(parts) == 1:
            return parts["data"]
        return tuple(parts.values()) if self.structure == "tuple" else list(parts.values())

    def _decoded(self, data: torch.Tensor, labels: Any, stored: _device.Stored, engine: Engine) -> Any:
        """The batch with its stored rows decoded on the device; what that cannot decode the CPU does, or says what is wrong."""

        def plans(stored: _device.Stored, sizes: List[int]) -> torch.Tensor:
            made = engine.core.plans(stored.epoch, array("Q", stored.samples).tobytes(), array("I", sizes).tobytes())
            return torch.frombuffer(bytearray(made), dtype=torch.int32).view(-1, _device.PLAN)

        try:
            self._decoder.fill(data, stored, plans)
            return data, labels
        except RuntimeError:  # of the decoder: it does not say which one
            pass
        options = {k: v for k, v in self._core_options.items() if k not in self._tiers}
        options.update(batch_size=1, threads=1, lookahead=1, spare=1, drop_last=False, flags=_core.DENSE)
        core, bad = _core.Loader(self._source.manifest, policy="naive", **options), set()
        for row, sample in zip(stored.rows, stored.samples):
            try:
                core.start_list(stored.epoch, array("Q", [sample]).tobytes())
                data[row].copy_(torch.from_dlpack(core.next().data)[0])
            except _core.DataError as why:
                bad.add(row)
                if self.on_error != "skip" or len(bad) == len(data):
                    raise
                self._bad_there.append(str(why))
        core.close()
        keep = [i for i in range(len(data)) if i not in bad]
        return (data[keep], labels[keep] if labels is not None else None) if bad else (data, labels)

    # ---- state ----

    def state_dict(self) -> Dict[str, Any]:
        """The position behind the last batch that was delivered: enough to go on exactly there."""
        if self._torch is not None:
            raise NotImplementedError(f"there is no position to save: {self.reason}")
        out = {
            "version": STATE_VERSION,
            "epoch": self._epoch,
            "batch": self._delivered_batches if self._in_epoch else 0,
            "in_epoch": self._in_epoch,
            "chain": self._chain if self._in_epoch else [],
            "batch_size": self.batch_size,
            "samples": len(self.dataset) if hasattr(self.dataset, "__len__") else None,
            "seed": self.seed,
            "order": self._order.state() if self._in_epoch else None,
        }
        return out

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """The next iteration continues where `state` was saved. Another number of ranks may continue it (with
        DistributedSampler): the remaining global sequence is the same."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"this state is of version {state.get('version')}, not {STATE_VERSION}")
        for key, here in (("samples", len(self.dataset)), ("seed", self.seed)):
            if state[key] != here:
                raise ValueError(f"this state is of another run: {key} {state[key]}, here {here}")
        self._epoch = state["epoch"]
        if not state["in_epoch"]:
            self._resume = None
            return
        other = state["order"].get("world") not in (None, getattr(self.sampler, "num_replicas", None))
        if state["batch_size"] != self.batch_size and not other:
            raise ValueError(f"this state is of another run: batch_size {state['batch_size']}, here {self.batch_size}")
        self._resume = state
        self._delivered_batches, self._in_epoch = state["batch"], True

    def _resumed(self, state: Dict[str, Any]) -> "tuple[List[int], int]":
        """The order of the epoch to continue, and how many of its batches were delivered."""
        world, chain = state["order"].get("world"), list(state["chain"])
        self._epoch = state["epoch"]
        if not chain and world in (None, getattr(self.sampler, "num_replicas", None)):
            return self._order.draw_again(state["order"]), state["batch"]
        self._chain = chain + [(world, state["batch"] * state["batch_size"] * world)]
        if not self._tiers:
            return self._order.rest(state["order"]["epoch"], self._chain), 0
        self.sampler.epoch = state["order"]["epoch"]
        self._start = sum(samples for _, samples in self._chain)
        left, ranks = max(0, len(self.dataset) - self._start), self.sampler.num_replicas
        return list(range(left // ranks if self.sampler.drop_last else -(-left // ranks))), 0  # which ones, the native loader knows

    # ---- looking at it, ending it ----

    def _counters(self) -> Dict[str, Any]:
        """Of all native loaders of this object together; {} without any."""
        each = [e.core.stats() for e in self._engines]
        if not each:
            return {}
        busiest = max(each, key=lambda one: one["batches"])
        out = dict(busiest)
        for key in ("batches", "samples", "sample_bytes", "read_bytes", "read_ns", "decode_ns", "transform_ns", "idle_ns", "cpu_ns", "slab_bytes"):
            out[key] = sum(one[key] for one in each)
        return out

    def stats(self) -> Dict[str, Any]:
        """What the loader has done: samples, bytes, nanoseconds waited, read, decoded, transformed, idle; and what
        limits it now ("storage", "decode" or "consumer"). `waited_s`: seconds that the loop has waited in next(). Where a
        device decodes, `device_rows` of each batch, and how long the thread that sees to it waited for the CPUs, worked, and was
        blocked by batches that nobody took."""
        out: Dict[str, Any] = {"native": self.native, "epoch": self._epoch, "batch": self._delivered_batches if self._in_epoch else 0}
        out.update(waited_s=self._watch.waited, **self._counters())
        if self.native:
            out["skipped"] = self.skipped
        if self._tiers and self._engines:
            out["tiers"] = self._engines[0].core.tiers()
        if self._share is not None:
            share, out["device_resize"] = self._share, "operators: " + why if (why := self._decoder.why_no_kernel) else "kernel"
            out.update(device_rows=share.rows, device_waited_s=share.waited, device_worked_s=share.worked, device_blocked_s=share.blocked)
        else:
            out["reason"] = self.reason
        return out

    def close(self) -> None:
        """Ends the threads and frees the memory, but for batches that are still in use."""
        engines, self._engines, self._idle = self._engines, [], []
        for engine in engines:
            engine.core.close()

    def __repr__(self) -> str:
        how = f"native, {self.num_workers or 'all'} threads" if self.native else f"{'native in part, ' if self._split else ''}called {self._who()}: {self.reason}"
        try:
            size = f"{len(self.dataset)} samples, {len(self)} batches of {self.batch_size}"
        except TypeError:
            size = f"batches of {self.batch_size}"
        part = f", rank {self.sampler.rank} of {self.sampler.num_replicas}" if isinstance(self.sampler, DistributedSampler) else ""
        more = (f", decode {self.decode}" if self.decode != "cpu" else "") + (f", tiers {self._tiers['tiers'] or 'auto'}" if self._tiers else "")
        return f"<millrace.torch.DataLoader {size}{part}, epoch {self._epoch}, {how}{more}>"
