"""Mixtures: one stream of samples out of several sources by their weights.

    from millrace.mixtures import Mixture

    mix = Mixture([(wiki, 0.7), (code, 0.2), (Mixture([(books, 2), (papers, 1)]), 0.1)], seed=1, unit="tokens")

Sources are token corpora (millrace.tokens, millrace.torch.Tokens), other mixtures, or anything that has a length and
gives samples by number. Item k of the stream is a function of (weights, seed, k): before any k, every source has given
its share to less than one item, whatever ranks, resumes and changes of weights there are (doc/internals/mixtures.md).
Each source has epochs of its own, each in another order.

A mixture is a data set whose sample k is item k: millrace.torch.DataLoader, millrace.numpy.Loader and
millrace.jax.Loader take it. `Stream` is what the last two make of it.
"""

import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from . import _core, _ranks
from ._corpus import PACKED, Corpus, Rows, collate

__all__ = ["Mixture", "Source", "Stream"]


class Source(NamedTuple):
    """A source of a mixture; where nothing but data and weight are given, a tuple of two will do.

    data     a corpus, a mixture, or anything with a length and samples by number
    weight   its share among its siblings, in any unit
    name     for messages, states and statistics
    seed     of its order; by default another one for each source, drawn from the mixture's
    shuffle  another order in each of its epochs; False: its own
    """

    data: Any
    weight: float
    name: str | None = None
    seed: int | None = None
    shuffle: bool = True


def _source(given: Any) -> Source:
    if isinstance(given, Source):
        made = given
    elif isinstance(given, (tuple, list)) and 2 <= len(given) <= len(Source._fields):
        made = Source(*given)
    else:
        raise TypeError(f"a source of a mixture is a tuple (source, weight), not {given!r:.60}")
    if not hasattr(made.data, "__len__") or not hasattr(made.data, "__getitem__"):
        kind = type(made.data).__name__
        raise TypeError(f"a source of a mixture has a length and samples by number; a '{kind}' has not")
    return made


class _Leaf(NamedTuple):
    node: int
    data: Any
    name: str


class Mixture:
    """A stream of samples of several sources; see the module's text.

    sources  tuples (source, weight), or `Source`
    seed     of the choice among sources that are equally due, and of their orders
    unit     what weights are shares of: "samples", or "tokens" (of the mean number of a source's samples)
    samples  of an epoch of the stream, for loops that have epochs: the next one goes on where it ends. Default: the sum
             of the sources' samples
    changes  [(item, weights), ...]: from that item of the stream on, these weights, one per source; 0 leaves one out
    name     for messages
    """

    def __init__(
        self,
        sources: Sequence[Any],
        seed: int = 0,
        unit: str = "samples",
        samples: int | None = None,
        changes: Sequence[tuple[int, Sequence[float]]] = (),
        name: str = "mixture",
    ) -> None:
        if unit not in ("samples", "tokens"):
            raise ValueError(f"unit is 'samples' or 'tokens', not '{unit}'")
        if not sources:
            raise ValueError("a mixture needs a source")
        self.sources = [_source(s) for s in sources]
        self.seed, self.unit, self.name = seed, unit, name
        self.changes = [(int(k), [float(w) for w in weights]) for k, weights in changes]
        for k, weights in self.changes:
            if len(weights) != len(self.sources):
                raise ValueError(
                    f"the weights of '{name}' from item {k} on are {len(weights)}, its sources {len(self.sources)}"
                )
        self._nodes: list[Any] = []
        self._changes: list[Any] = []
        self._leaves: dict[int, _Leaf] = {}
        self._add(Source(self, 1.0, name), 0)
        self._lock = threading.Lock()  # of the order, which makes tables when they are first needed
        self._order = _core.Mixture(self._nodes, self._changes, seed)
        self._loaded: str | None = None
        n = sum(len(leaf.data) for leaf in self._leaves.values())
        self.n = n if samples is None else int(samples)
        if self.n < 1:
            raise ValueError(f"an epoch of a mixture has at least one sample, not {samples}")

    def _add(self, source: Source, parent: int) -> None:
        node, data = len(self._nodes), source.data
        name = source.name or getattr(data, "name", None) or f"source {node}"
        mixed = isinstance(data, Mixture)
        tokens = 0.0 if mixed else float(getattr(data, "mean_tokens", 0.0))
        samples = 0 if mixed else len(data)
        by_tokens = mixed and data.unit == "tokens"
        weight = float(source.weight)
        self._nodes.append((name, parent, weight, samples, tokens, by_tokens, not source.shuffle, source.seed))
        if not mixed:
            self._leaves[node] = _Leaf(node, data, name)
            return
        for child in data.sources:
            self._add(child, node)
        self._changes.extend((node, k, weights) for k, weights in data.changes)

    # ---- as a data set ----

    def __len__(self) -> int:
        return self.n

    def items(self, ks: Sequence[int]) -> Any:
        """Items of the stream as an array of 4 rows: node (1 is the first source), sample, epoch of the source, number
        of the item in the source's stream."""
        if len(ks) and min(ks) < 0:
            raise IndexError(f"item {min(ks)} of a mixture: items begin with 0")
        with self._lock:
            return np.asarray(self._order.items(array("Q", ks).tobytes()))

    def __getitem__(self, k: int) -> Any:
        node, sample = (int(x) for x in self.items([k])[:2, 0])
        return self._leaves[node].data[sample]

    def __getitems__(self, ks: Sequence[int]) -> Any:
        """Items k of the stream, those of each source read together."""
        items = self.items(ks)
        nodes = np.unique(items[0])
        if len(nodes) == 1:
            return self._read(int(nodes[0]), items[1])
        out: list[Any] = [None] * len(ks)
        for node in nodes:
            rows = np.flatnonzero(items[0] == node)
            for row, sample in zip(rows, self._read(int(node), items[1][rows])):
                out[row] = sample
        return out

    def _read(self, node: int, samples: Any) -> Any:
        data = self._leaves[node].data
        ids = [int(s) for s in samples]
        many = getattr(data, "__getitems__", None)
        return many(ids) if many is not None else [data[i] for i in ids]

    def collate(self, samples: Sequence[Any]) -> Any:
        """A batch of samples as numpy arrays; of token corpora, with cu_seqlens and offsets."""
        return collate(samples)

    # ---- shares and states ----

    def shares(self, k: int) -> list[dict[str, Any]]:
        """Of each source, and of mixtures inside, before item k: items `asked` and `given`, its `weight` now among its
        siblings, its `epochs`, and `tokens` given in the mean."""
        with self._lock:
            rows = self._order.shares(k)
        out = []
        for node, (given, asked, weight, epochs) in list(enumerate(rows))[1:]:
            name, parent, _, samples, tokens, *_ = self._nodes[node]
            out.append(
                dict(
                    name=name,
                    inside=self._nodes[parent][0] if parent else None,
                    asked=asked,
                    given=given,
                    weight=weight,
                    epochs=epochs if samples else None,
                    tokens=round(given * tokens) if tokens else None,
                )
            )
        return out

    def state_at(self, k: int) -> dict[str, Any]:
        """The state before item k: k, the version of the weights, and what each source has given; of packed sources
        the window that their next sample is in, its position there, and how many sequences there are."""
        with self._lock:
            text = self._order.save(k)
            version = self._order.weights_version(0, k)
            packed = self._windows(self._order, k)
        return {"version": 1, "item": k, "weights": version, "mixture": text, "packed": packed}

    def _windows(self, order: Any, k: int) -> dict[str, list[int]]:
        out, shares = {}, order.shares(k)
        for node, leaf in self._leaves.items():
            corpus = getattr(leaf.data, "corpus", leaf.data)
            if isinstance(corpus, Corpus) and corpus.cut == PACKED:
                sample = order.sample(node, shares[node][0])
                out[str(node)] = [*corpus.place(sample)[1:], len(corpus)]
        return out

    def restore(self, state: dict[str, Any]) -> int:
        """Continues there; returns k. ValueError: what differs from the mixture that was saved. Weights may have
        changes that it had not, from item k on. Items before k can then no longer be asked for."""
        if state.get("version") != 1 or "mixture" not in state:
            raise ValueError("this is no state of a mixture")
        order = _core.Mixture(self._nodes, self._changes, self.seed)
        k = order.restore(state["mixture"])
        here, saved = self._windows(order, k), state.get("packed", {})
        for node in sorted({*here, *saved}):
            if here.get(node) != saved.get(node):
                raise ValueError(
                    f"cannot continue the saved mixture: source '{self._nodes[int(node)][0]}' is packed otherwise than "
                    f"when the state was saved (window, position, sequences: {saved.get(node)}, here {here.get(node)})"
                )
        with self._lock:
            self._order, self._loaded = order, state["mixture"]
        return k

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_lock", "_order")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()
        self._order = _core.Mixture(self._nodes, self._changes, self.seed)
        if self._loaded is not None:
            self._order.restore(self._loaded)

    def __repr__(self) -> str:
        names = ", ".join(f"'{leaf.name}'" for leaf in list(self._leaves.values())[:5])
        return f"<Mixture of {len(self._leaves)} sources: {names}{', ...' if len(self._leaves) > 5 else ''}>"


class Stream:
    """Batches of a mixture or a token corpus without an end, read ahead by threads: this rank's items r, r + world, ...
    of the stream.

        stream = Stream(mix, batch_size=8)
        for batch in stream:                # a dict of numpy arrays
            ...
            state = stream.state_dict()     # the same on all ranks

    dataset      a Mixture, or a corpus, which is shuffled (shuffle=False: in its own order)
    batch_size   of each rank
    rank, world  default: those of an initialised process group, else of torchrun's RANK and WORLD_SIZE
    threads      that read; lookahead: batches that are read ahead
    steps        end after so many batches
    convert      what becomes of each array (jax.numpy.asarray)
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int = 1,
        *,
        shuffle: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world: int | None = None,
        threads: int = 2,
        lookahead: int = 4,
        steps: int | None = None,
        convert: Callable[[Any], Any] | None = None,
    ) -> None:
        if batch_size < 1 or threads < 1 or lookahead < 1:
            raise ValueError("batch_size, threads and lookahead are at least 1")
        if isinstance(dataset, Mixture):
            self.mixture = dataset
        else:
            self.mixture = Mixture([Source(dataset, 1.0, shuffle=shuffle)], seed)
        ranks = _ranks.decide(None)[:2] if rank is None and world is None else (rank or 0, world or 1)
        self.rank, self.world = ranks
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank {self.rank} does not exist in a world of {self.world} ranks")
        self.batch_size, self.steps, self._convert = batch_size, steps, convert
        self._threads, self._ahead = threads, lookahead
        self.item = 0  # of all ranks: where the next batch begins
        self._turn = 0

    def _batch(self, first: int) -> Any:
        ks = range(first + self.rank, first + self.batch_size * self.world, self.world)
        samples = self.mixture.__getitems__(ks)
        batch = samples.batch if isinstance(samples, Rows) else self.mixture.collate(samples)
        return batch if self._convert is None else _converted(batch, self._convert)

    def __iter__(self) -> Iterator[Any]:
        self._turn += 1
        turn, stride = self._turn, self.batch_size * self.world
        ahead: deque[Future[Any]] = deque()
        coming, left = self.item, self.steps
        pool = ThreadPoolExecutor(self._threads, thread_name_prefix="millrace-mix")
        try:
            while left is None or left > 0 or ahead:
                while len(ahead) < self._ahead and (left is None or left > 0):
                    ahead.append(pool.submit(self._batch, coming))
                    coming += stride
                    left = None if left is None else left - 1
                batch = ahead.popleft().result()
                self.item += stride
                yield batch
                if turn != self._turn:
                    raise RuntimeError("another iteration of this stream has begun since, or a state was loaded")
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def state_dict(self) -> dict[str, Any]:
        """The state behind the last batch that was delivered; the same on all ranks, for any number of them."""
        return self.mixture.state_at(self.item)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration continues there, or ValueError: why it cannot."""
        self.item = self.mixture.restore(state)
        self._turn += 1

    def stats(self) -> dict[str, Any]:
        """The next item, and the shares of the sources before it."""
        return {"item": self.item, "sources": self.mixture.shares(self.item)}


def _converted(batch: Any, convert: Callable[[Any], Any]) -> Any:
    if isinstance(batch, dict):
        return {name: _converted(value, convert) for name, value in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_converted(value, convert) for value in batch)
    return convert(batch) if isinstance(batch, np.ndarray) else batch


def stream_of(dataset: Any, *arguments: Any, **options: Any) -> "Stream | None":
    """A Stream of a mixture or a corpus; None: it is something else, a path perhaps."""
    if not isinstance(dataset, (Mixture, Corpus)):
        return None
    return Stream(dataset, *arguments, **options)
