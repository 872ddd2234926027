"""A drop-in for torch.utils.data.DataLoader.

    from millrace.torch import DataLoader

    dataset = torchvision.datasets.ImageFolder("/data/imagenet/train", transform)
    loader = DataLoader(dataset, batch_size=256, shuffle=True, num_workers=16, device="cuda")
    for epoch in range(90):
        for images, labels in loader:
            ...

Given a path (a folder of class folders, or a data set with a manifest), or a torchvision ImageFolder or DatasetFolder
whose transforms are known, everything runs in C threads without Python: reading, decoding of only the part of a JPEG
that a crop needs, one pass for resize, flip, normalisation and layout. The order is torch's own, drawn from the same
sampler and generator; pictures differ from torchvision's by the rounding of the resize only. What is random (crop,
flip) is a function
of (seed, epoch, sample): it does not depend on threads, ranks or resuming.

Where only the first transforms are known, those are native and the others run in Python. Any other data set works by
calling it, in torch's own worker processes or in threads. One warning names what runs in Python and why.

Inside: this file puts a loader together and runs its epochs; `_mode.py` lists the modes, `_position.py` counts batches.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, TypeVar, cast

import torch
from torch.utils.data import BatchSampler, Dataset, IterableDataset, IterDataPipe
from torch.utils.data import DataLoader as TorchLoader

from . import _accelerate, _fields, _mixed, _pickled, _ranks, _recipe, _samplers
from ._calling import Called, Plain, torch_arguments
from ._datasets import PathDataset, Tokens, dataset_source, path_dataset
from ._mixed import Mixture
from ._mode import Iteration, Mode, Plan
from ._native import Native, Tiered
from ._options import Options
from ._order import Order
from ._pictures import NotNative, Parts
from ._position import Position
from ._sources import Source
from ._streamed import Late, Streamed
from ._torch_save import load, save, wait
from ._watch import Watch

__all__ = ["DataLoader", "Mixture", "Tokens", "load", "save", "wait"]

T = TypeVar("T", covariant=True)

_OPTIONS = frozenset(field.name for field in fields(Options))


class DataLoader(TorchLoader[T]):
    """Batches of samples, in torch's order; see the module's text for what runs natively.

    dataset         a path, or a Dataset
    batch_size, shuffle, sampler, batch_sampler, drop_last, generator, collate_fn, worker_init_fn, timeout
                    as torch's
    num_workers     threads of the native loader, 0: as many as there are CPUs; workers where it is not possible
    workers         what those are: "processes", torch's, or "threads" of this process, which call the data set sample
                    by sample
    pin_memory      batches lie in pinned memory of torch's
    prefetch_factor batches read ahead (3)
    transform       for a path: a torchvision transform (v1 or v2)
    device          where batches are to be: the copy runs on a stream of its own, one batch ahead
    seed            of crops and flips; default: the generator's, or torch's initial seed
    on_error        "raise", or "skip": samples that cannot be decoded are left out of their batch; see `skipped`
    uint8_transfer  with device: pictures travel as bytes and are normalised there
    channels_last   pictures have torch.channels_last strides
    structure       of a native batch: None, a list as torch's, [data, labels], or data where there are no labels;
                    "tuple": the same as a tuple; "dict": {"data": ..., "label": ...}
    variable        samples that differ in shape: "list", one tensor each; "pad": one tensor, as large as the largest,
                    zeros behind the others, and their shapes as another part ("shape" in a dict) behind the labels
    decode          "cpu"; "gpu": JPEG pictures are decoded, cut and resized on the device, with the nvJPEG that
                    torchvision carries; "hybrid": shared by both, the device's part tuned automatically so that the
                    training does not wait for the CPUs. Needs device="cuda" and transforms to one size; implies
                    uint8_transfer. Two CPUs are left to the training, even if num_workers is larger
    fast            JPEG pictures that are reduced to a half or less are decoded at 1/2, 1/4 or 1/8 of their size:
                    quicker, and a little different
    distributed     without a sampler, where a process group is initialised (when an epoch begins), else where RANK and
                    WORLD_SIZE are set (torchrun): each rank reads its part, as with torch's DistributedSampler and
                    set_epoch. True: also by the variables of mpirun or srun, or it is an error. False: all of it
    tiers           keep stored bytes near from epoch to epoch: "ram=2GiB,ssd=/nvme/cache:100GiB", or "auto" (the
                    manual's page on tiers). The order is then that of a DistributedSampler, a function of seed, epoch
                    and rank; ranks of torchrun share a node's tiers
    policy          caching policy of the tiers ("millrace"); peers: do nodes read from each other ("auto", "on", "off")
    epochs          how many epochs will be read, where it is known: tiers plan for them
    native          True: what cannot run natively is an error; False: the data set is called as torch would call it,
                    with torch's random numbers
    warn_after      seconds after which a loop that waits more than 5 % of them gets one warning with the cause; 0:
                    never

    fields          for a path: names of the fields to read, "*", or a dict of names and uses; by default all, where
                    samples have several. Batches are then dicts of tensors by name ("tuple": in that order). With
                    variable="pad" there are `x_lengths`, with "pack" `x_offsets` (doc/guides/fields.md)
    snapshot_every_n_steps
                    of data sets with a state_dict of their own, in worker processes: how many batches lie between two
                    states that they send along

    It is a torch.utils.data.DataLoader and has its attributes, from which frameworks make loaders of their own. What
    torch lets a program change (collate_fn, num_workers and so on) counts from the next epoch on. `close()` ends the
    threads; so does dropping the loader.
    """

    def __init__(
        self,
        dataset: "str | os.PathLike[str] | Dataset",
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        transform: Any = None,
        device: "None | str | torch.device" = None,
        seed: int | None = None,
        on_error: str = "raise",
        uint8_transfer: bool = False,
        channels_last: bool = False,
        workers: str = "processes",
        structure: str | None = None,
        variable: str = "list",
        decode: str = "cpu",
        fast: bool = False,
        distributed: bool | None = None,
        tiers: str | None = None,
        policy: str | None = None,
        peers: str = "auto",
        epochs: int | None = None,
        native: bool | None = None,
        warn_after: float = 60.0,
        snapshot_every_n_steps: int | None = 1,
        fields: Any = None,
    ) -> None:
        self._arguments = _pickled.arguments(locals())
        collate_fn = collate_fn or getattr(dataset, "millrace_collate", None)
        options = Options(
            batch_size=batch_size,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            drop_last=drop_last,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            generator=generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
            device=torch.device(device) if device is not None else None,
            on_error=on_error,
            uint8_transfer=uint8_transfer,
            channels_last=channels_last,
            workers=workers,
            structure=structure,
            variable=variable,
            decode=decode,
            fast=fast,
            snapshot_every_n_steps=snapshot_every_n_steps,
        )
        if type(dataset) is PathDataset and transform is None:
            transform, dataset = dataset.transform, dataset.path
        self._position = Position()
        self._watch = Watch(warn_after)
        self._prepared: _accelerate.Prepared | None = None
        self._is_path = isinstance(dataset, (str, os.PathLike))
        self._source: Source | None = None
        self._parts: Parts | None = None
        self._find_source(options, dataset, transform, sampler, batch_sampler, native)
        self._choose_fields(fields, variable)
        reason = self._why_called(options, batch_sampler)
        if native and reason is not None:
            raise NotImplementedError(f"native=True, but {reason}")
        if self._is_path and self._source is not None and self._parts is not None:
            dataset = PathDataset(os.fspath(cast(str, dataset)), transform, self._source, self._parts)
        tiered = tiers is not None or policy is not None
        self._explicit_seed = seed is not None
        self._choice: _samplers.Choice | None = None
        self._init_torch(options, dataset, shuffle, sampler, batch_sampler, reason)
        if not isinstance(dataset, IterableDataset):
            self._choice = _samplers.Choice(
                self.dataset,
                batch_size,
                shuffle,
                sampler,
                batch_sampler,
                drop_last,
                generator,
                seed,
                distributed,
                tiered and reason is None,
            )
            options.batch_size, options.drop_last = self._choice.now.batch_size, self._choice.now.drop_last
        self._tiers: dict[str, Any] | None = None
        if tiered:
            last = -1 if epochs is None else max(0, epochs - 1)
            self._tiers = dict(tiers=tiers, policy=policy, peers=peers, last_epoch=last)
        self.seed = 0
        self._order: Order | None = None
        self._mode: Mode = self._make_mode(options, reason, seed)
        self._options, self._is_stale = options, False
        # What a framework that makes another loader like this one looks for.
        again = dict(transform=None, distributed=distributed, tiers=tiers, policy=policy, peers=peers, epochs=epochs)
        self.__dict__.update(again, native=native, warn_after=warn_after)

    # ---- construction ----

    def _init_torch(
        self, options: Options, dataset: Any, shuffle: Any, sampler: Any, batch_sampler: Any, reason: str | None
    ) -> None:
        """torch's own construction: its checks, samplers and attributes."""
        more: dict[str, Any] = {}
        if options.num_workers or (reason is not None and options.workers == "processes"):  # threads need no processes
            more = dict(prefetch_factor=options.prefetch_factor, persistent_workers=options.persistent_workers)
        more.update(pin_memory_device=options.pin_memory_device, in_order=options.in_order)
        self.__dict__["workers"] = options.workers  # of these torch's constructor may warn
        super().__init__(
            dataset,
            batch_size=options.batch_size,
            shuffle=shuffle,
            sampler=sampler,
            batch_sampler=batch_sampler,
            num_workers=options.num_workers,
            collate_fn=options.collate_fn,
            pin_memory=options.pin_memory,
            drop_last=options.drop_last,
            timeout=options.timeout,
            worker_init_fn=options.worker_init_fn,
            multiprocessing_context=options.multiprocessing_context,
            generator=options.generator,
            **torch_arguments(more),
        )
        for name in _OPTIONS - {"multiprocessing_context"}:
            self.__dict__.setdefault(name, getattr(options, name))

    def check_worker_number_rationality(self) -> None:
        """torch's warning about more worker processes than CPUs, where there will be any."""
        if self._source is None and self.workers == "processes":
            super().check_worker_number_rationality()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in _OPTIONS and "_options" in self.__dict__:
            if self._tiers is not None:
                raise RuntimeError(f"'{name}' of a loader with tiers cannot be changed: make a new loader")
            setattr(self._options, name, value)
            self._arguments[name] = value
            self._is_stale = True

    def _find_source(
        self, options: Options, dataset: Any, transform: Any, sampler: Any, batch_sampler: Any, native: bool | None
    ) -> None:
        """What can be read natively and what becomes of it, or why nothing is."""
        if not self._is_path and transform is not None:
            raise ValueError("`transform` goes with a path; a Dataset has its own")
        self._why_not: str | None = None
        try:
            if isinstance(dataset, IterableDataset):
                raise NotNative("it is an IterableDataset")
            if options.batch_size is None and batch_sampler is None:
                raise NotNative("batch_size=None asks for single samples")
            if native is False and not self._is_path:
                raise NotNative("native=False asks for it")
            if any(s is not None and not hasattr(s, "__len__") for s in (sampler, batch_sampler)):
                raise NotNative("the sampler has no length")
            found = path_dataset(os.fspath(dataset), transform) if self._is_path else dataset_source(dataset)
            self._source, self._parts = found
            if not self._splits(options) and (reason := self._why_called(options, batch_sampler)) is not None:
                self._source = None
                raise NotNative(reason)
        except NotNative as why:
            if self._is_path:
                raise NotImplementedError(f"'{os.fspath(dataset)}' cannot be loaded natively: {why}") from None
            self._why_not = str(why)

    def _choose_fields(self, fields: Any, variable: str) -> None:
        """Which fields of a path's samples are read."""
        if self._is_path and self._source is not None:
            self._source.fields = _fields.choose(self._source.manifest, fields, variable)
        elif fields is not None:
            raise ValueError("`fields` goes with a path; a Dataset has its own samples")

    def _splits(self, options: Options) -> bool:
        """Can worker processes read natively and call the rest?"""
        return options.workers != "threads" and self._source is not None and self._source.unpack is None

    def _why_called(self, options: Options, batch_sampler: Any) -> str | None:
        """Why Python code of the program makes samples, or a part of them; None: everything is native."""
        if self._source is None or self._parts is None:
            return self._why_not
        if self._parts.rest:
            return self._parts.why
        if options.collate_fn not in (None, torch.utils.data.default_collate):
            return "there is a collate_fn"
        if batch_sampler is not None and type(batch_sampler) is not BatchSampler:
            return f"batches come from a '{type(batch_sampler).__name__}'"
        return None

    def _make_mode(self, options: Options, reason: str | None, seed: int | None) -> Mode:
        if isinstance(self.dataset, IterableDataset):
            return self._iterable(options)
        assert self._choice is not None
        samplers = self._choice.now
        self._order = order = Order(
            samplers.sampler,
            samplers.batch_sampler,
            self.generator,
            self.num_workers,
            self.persistent_workers,
            options.prefetch_factor or 2,
        )
        source, parts = self._source, self._parts
        if self._tiers is not None:
            Tiered.check(source if reason is None else None, reason, samplers.sampler)
            seed = samplers.sampler.seed
        if seed is None:
            seed = self.generator.initial_seed() if self.generator is not None else torch.initial_seed()
        self.seed = seed & 0xFFFFFFFFFFFFFFFF
        if reason is not None:
            single = samplers.batch_sampler is None
            if not hasattr(samplers.sampler, "__len__"):
                drawn = samplers.sampler if single else samplers.batch_sampler
                return Late(options, self.dataset, reason, drawn, single)
            split = (source, parts) if source is not None and parts is not None else None
            return Called(options, self.dataset, order, self.seed, reason, split, single)
        assert source is not None and parts is not None
        if self._tiers is not None:
            return Tiered(options, source, parts.parameters, samplers.sampler, self._tiers)
        return Native(options, source, parts.parameters, self.seed)

    def _iterable(self, options: Options) -> Plain:
        if options.workers == "threads":
            raise ValueError(
                "an IterableDataset is read by processes: workers='threads' needs a data set with numbered samples"
            )
        if options.skips or options.decode != "cpu":
            raise NotImplementedError("on_error='skip' and decode are not possible with an IterableDataset")
        batching = dict(batch_size=options.batch_size, drop_last=options.drop_last)
        kind = Plain if isinstance(self.dataset, IterDataPipe) else Streamed
        return kind(options, self.dataset, "it is an IterableDataset", **batching)

    def _renew(self) -> None:
        """An option was changed: it counts from this epoch on."""
        options, self._is_stale = self._options, False
        reason = self._why_called(options, self.batch_sampler)
        if reason is not None and self._source is not None and not self._splits(options):
            if self._is_path:
                raise NotImplementedError(f"{self.dataset!r} cannot be loaded natively: {reason}")
            self._source, self._why_not = None, reason
        self._mode = self._make_mode(options, reason, self.seed)

    # ---- epochs ----

    @property
    def sampler(self) -> Any:
        """Where the order comes from, for the ranks that there are now."""
        return self.__dict__["sampler"] if self._choice is None else self._choice.settle().sampler

    @sampler.setter
    def sampler(self, value: Any) -> None:
        self.__dict__["sampler"] = value  # by torch's constructor

    @property
    def batch_sampler(self) -> Any:
        """Where batches come from, for the ranks that there are now."""
        return self.__dict__["batch_sampler"] if self._choice is None else self._choice.settle().batch_sampler

    @batch_sampler.setter
    def batch_sampler(self, value: Any) -> None:
        self.__dict__["batch_sampler"] = value

    @property
    def native(self) -> "bool | str":
        """True: everything runs in C threads; "in part": reading, decoding and the first transforms; False: nothing.
        `reason` is why not everything."""
        return self._mode.native

    @property
    def reason(self) -> str | None:
        """Why the native loader is not used, or not for everything; None: it is."""
        return self._mode.reason

    @property
    def classes(self) -> list[str]:
        """Names of the classes of a folder of pictures."""
        known = self._mode.classes
        return known if known is not None else list(getattr(self.dataset, "classes", []))

    @property
    def skipped(self) -> int:
        """Samples left out so far with on_error="skip"."""
        return self._mode.skipped

    def __len__(self) -> int:
        if isinstance(self._mode, Plain):
            self._settle_plain(self._mode)
            return len(self._mode.loader)
        return len(self.batch_sampler if self.batch_sampler is not None else self.sampler)

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is that of epoch `epoch`: for the crops and flips, and for a sampler that has
        set_epoch."""
        self._position.set_epoch(epoch)
        choice = self._choice
        if choice is not None and hasattr(choice.now.sampler, "set_epoch"):
            choice.now.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        if self._is_stale:
            self._renew()
        mode, position, order = self._mode, self._position, self._order
        if isinstance(mode, Plain) or order is None:
            return self._iterate_plain()
        mode.check_unchanged()
        size = self._options.batch_size
        choice, samplers = self._settle()
        choice.warn()
        batched = samplers.batch_sampler if samplers.batch_sampler is not None else samplers.sampler
        resume = position.take_resume(len(batched))
        data = position.take_data(resume)
        if choice.own and hasattr(samplers.sampler, "set_epoch"):
            samplers.sampler.set_epoch(position.epoch)
        if resume is not None:
            indices, first = position.take_up(order, resume, size, self._options.drop_last)
        else:
            indices, first = order.draw(), 0
        self._watch.resume(mode.counters)
        if resume is not None and not indices[first * (size or 1) :]:  # saved behind the last batch
            position.end(position.begin(first, order.tail))
            return iter(())
        n_batches = -(-len(indices) // size) if size else len(batched)

        def peek() -> list[int] | None:
            return order.peek() if position.resume is None else None

        batches = mode.epoch(Plan(position.epoch, indices, first, n_batches, position.start, peek, data))
        made = Iteration(batches, mode, position.begin(first, order.tail), position, self._watch, n_batches)
        if self._prepared is None:
            return made
        left = len(self.dataset) - position.start
        remainder = _accelerate.remainder(left, choice.ranks.world, size or 1, self._options.drop_last)
        return self._prepared.batches(made, remainder, self._options.device is None)

    def _iterate_plain(self) -> Iterator[Any]:
        mode = self._mode
        assert isinstance(mode, Plain)
        self._settle_plain(mode)
        self._watch.resume(mode.counters)
        position = self._position
        batches, first = mode.epoch_of(position) if isinstance(mode, Streamed) else (mode.batches(), 0)
        return Iteration(batches, mode, position.begin(first, None), position, self._watch, None)

    def _settle(self) -> "tuple[_samplers.Choice, _samplers.Samplers]":
        """The samplers of the ranks that there are now, in use."""
        assert self._choice is not None and self._order is not None
        samplers = self._choice.settle()
        self._order.use(samplers.sampler, samplers.batch_sampler, self._choice.ranks)
        self._mode.use(samplers.sampler)
        return self._choice, samplers

    def _settle_plain(self, mode: Plain) -> None:
        if self._choice is not None:
            sampler = self._choice.settle().sampler
            mode.use(sampler)
            if self._choice.own and hasattr(sampler, "set_epoch"):
                sampler.set_epoch(self._position.epoch)

    @property
    def _is_accelerate_prepared(self) -> bool:
        """accelerator.prepare() reads it: True: the loader stays as it is, and moves its batches by itself. False:
        accelerate makes one of its own around the data set and the sampler."""
        if self._prepared is None and self._choice is not None and not isinstance(self._mode, Plain):
            prepared = _accelerate.prepare()
            if prepared is not None and self._choice.fix_by_epoch():
                self._prepared = prepared
                self._settle()
        return self._prepared is not None

    @_is_accelerate_prepared.setter
    def _is_accelerate_prepared(self, value: bool) -> None:
        pass

    @property
    def use_stateful_dataloader(self) -> bool:
        """accelerate's save_state reads it: there is a state_dict."""
        return self._prepared is not None

    # ---- state ----

    def state_dict(self) -> dict[str, Any]:
        """The position behind the last batch that was delivered: enough to go on exactly there."""
        self._check_in_order("save")
        if isinstance(self._mode, Streamed):
            return self._mode.state(self._position, self._ranks(), self.seed)
        if isinstance(self._mode, Plain) or self._order is None:
            raise NotImplementedError(f"there is no position to save: {self.reason}")
        samples = len(self.dataset) if hasattr(self.dataset, "__len__") else None
        state = self._position.state(self._order, self._options.batch_size, samples, self.seed, self._mode.data_state)
        if isinstance(self.dataset, Mixture):
            state["mixture"] = self.dataset.state_at(_mixed.position(state, len(self.dataset)))
        return state

    def _check_in_order(self, what: str) -> None:
        if not self.in_order and not self._mode.native and self.num_workers:
            raise NotImplementedError(f"there is no position to {what}: with in_order=False batches come in any order")

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration continues where `state` was saved, or ValueError: why it cannot. Another number of ranks
        continues with what is left of the epoch: each rank loads the state of any rank. What is random goes on with the
        state's seed, unless this loader was given one."""
        if isinstance(self._mode, Streamed):
            self._check_in_order("continue")
            return self._mode.load(state, self._position, self._ranks())
        if isinstance(self._mode, Plain) or self._order is None:
            raise NotImplementedError(f"there is no position to continue: {self.reason}")
        order, saved = self._order, state.get("order") or {}
        self._mode.check_data(state.get("data"))
        if isinstance(self.dataset, Mixture) and "mixture" in state:
            self.dataset.restore(state["mixture"])
        choice, _ = self._settle()
        if saved.get("kind") == "distributed":
            choice.adopt_seed(saved["seed"])
            self._settle()
        seed = self.seed if self._explicit_seed else None
        self._position.load(state, order, self._options.batch_size, len(self.dataset), seed)
        self.seed = state["seed"]
        self._mode.reseed(self.seed)
        self._mode.restart()

    def _ranks(self) -> "_ranks.Ranks":
        """Of a program whose data set or sampler divides the data by itself."""
        return _ranks.decide(None)

    def __reduce__(self) -> Any:
        """Into another process: a loader of its own, at the same position."""
        given, generator = dict(self._arguments), self._arguments["generator"]
        given["generator"] = None
        _pickled.check(given)
        packed = _recipe.pack(generator) if generator is not None else None
        moved = self._order is not None and not isinstance(self._mode, Plain) and self._position.moved
        return _again, (type(self), given, packed, self.seed, self.state_dict() if moved else None)

    # ---- looking at it, ending it ----

    def stats(self) -> dict[str, Any]:
        """Counters of the loader: samples, bytes, nanoseconds waited, read, decoded, transformed, idle; and what
        limits it now ("storage", "decode" or "consumer"). `waited_s`: seconds that the loop has waited in next().
        Where a device decodes, `device_rows` of each batch, and how long its thread waited for the CPUs, worked, and
        was blocked because the training was slower."""
        position, mode = self._position, self._mode
        out: dict[str, Any] = {"native": mode.native, "epoch": position.epoch, "batch": position.batch}
        return {**out, "waited_s": self._watch.waited, **mode.counters(), **mode.stats()}

    def close(self) -> None:
        """Ends the threads and frees the memory, but for batches that are still in use."""
        self._mode.close()

    def __repr__(self) -> str:
        try:
            size = f"{len(self.dataset)} samples, {len(self)} batches of {self._options.batch_size}"
        except TypeError:
            size = f"batches of {self._options.batch_size}"
        part = ""
        if self._choice is not None and self._choice.ranks.world > 1:
            part = f", rank {self._choice.ranks.rank} of {self._choice.ranks.world}"
        return f"<millrace.torch.DataLoader {size}{part}, epoch {self._position.epoch}, {self._mode.describe()}>"


def _again(
    kind: type[DataLoader[Any]],
    given: dict[str, Any],
    generator: dict[str, Any] | None,
    seed: int,
    state: dict[str, Any] | None,
) -> DataLoader[Any]:
    if generator is not None:
        given["generator"] = torch.Generator()
        given["generator"].set_state(_recipe.unpack(generator))
    loader = kind(**given)
    loader.seed = seed
    loader._mode.reseed(seed)
    if state is not None:
        loader.load_state_dict(state)
    return loader
