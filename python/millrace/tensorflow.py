"""Batches for TensorFlow: a tf.data.Dataset.

    from millrace.tensorflow import dataset

    train = dataset("/data/imagenet/train", 256, shuffle=True, seed=1, drop_last=True, pictures={"size": 224})
    model.fit(train, epochs=90)

It is made of batches already, read ahead and decoded in C threads: no `map`, `batch` or `shuffle` behind it, and
`prefetch(1)` only to have a device copy under way. Each iteration, and each round of `repeat`, is the next epoch with
its own order.
"""

import json
import os
import threading
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from . import numpy as _plain

__all__ = ["Batches", "dataset"]


class _Epochs:
    """What the dataset calls for the batches of an epoch. TensorFlow may begin one before it has dropped another (two
    iterators,
    or one whose end it did not wait for): each has a loader of its own while it runs."""

    def __init__(self, make: Any, first: _plain.Loader, epoch: int, batch: int) -> None:
        self._make, self._idle, self._epoch, self._batch = make, [first], epoch, batch
        self._lock = threading.Lock()

    def __call__(self) -> Iterator[tuple[Any, ...]]:
        with self._lock:
            loader = self._idle.pop() if self._idle else None
            epoch, self._epoch = self._epoch, self._epoch + 1
            batch, self._batch = self._batch, 0
        if loader is None:
            loader = self._make()
        try:
            loader.seek(epoch, batch)
            for item in loader:
                yield _parts(item)
        finally:
            with self._lock:
                self._idle.append(loader)


_DIFFER = "samples differ in shape, of which TensorFlow cannot make a batch: for pictures say pictures={'size': ...}"


def _parts(item: _plain.Batch) -> tuple[Any, ...]:
    if item.fields is not None:
        return (_by_name(item.fields),)
    if isinstance(item.data, list):
        raise ValueError(_DIFFER)
    return (item.data,) if item.labels is None else (item.data, item.labels)


def _by_name(fields: dict[str, Any]) -> dict[str, Any]:
    """Packed fields as ragged tensors, text as strings."""
    out: dict[str, Any] = {}
    for name, value in fields.items():
        if name.endswith("_offsets") and name.removesuffix("_offsets") in fields:
            packed = name.removesuffix("_offsets")
            out[packed] = tf.RaggedTensor.from_row_splits(fields[packed], value)
        elif isinstance(value, list) and not all(isinstance(row, str) for row in value):
            raise ValueError(
                f"values of field '{name}' differ in shape, of which TensorFlow cannot make a batch: "
                "say variable='pad' or variable='pack', or leave it out with fields="
            )
        else:
            out[name] = value
    return out


def _spec(value: Any, rows: int | None, alike: bool) -> Any:
    if isinstance(value, list):
        return tf.TensorSpec((rows,), tf.string)
    if isinstance(value, tf.RaggedTensor):
        inner = value.flat_values.shape[1:]
        return tf.RaggedTensorSpec((rows, None, *inner), value.dtype, ragged_rank=1, row_splits_dtype=tf.int64)
    return tf.TensorSpec((rows, *(value.shape[1:] if alike else (None,) * (value.ndim - 1))), value.dtype)


def _field_signature(loader: _plain.Loader, rows: int | None) -> dict[str, Any]:
    """What batches of several fields look like, from the first one."""
    axis = loader._fields.axis if loader._fields is not None else {}
    first = next(iter(loader)).fields
    loader.set_epoch(0)
    return {n: _spec(v, rows, axis.get(n) is None) for n, v in _by_name(first or {}).items()}


def _signature(loader: _plain.Loader, path: Any, pictures: Any, store: Any, rows: int | None) -> tuple[Any, ...]:
    """What batches look like, from the first sample."""
    if loader._fields is not None:
        return (_field_signature(loader, rows),)
    data, label = _plain.Samples(path, pictures=pictures, store=store)[0]
    specs: list[Any] = [tf.TensorSpec((rows, *data.shape), data.dtype)]
    if label is not None:
        specs.append(tf.TensorSpec((rows,), tf.int64))
    return tuple(specs)


def dataset(
    path: "str | os.PathLike[str]",
    batch_size: int = 1,
    *,
    epoch: int = 0,
    step: int | None = None,
    pictures: Any | None = None,
    store: str | None = None,
    drop_last: bool = False,
    **options: Any,
) -> "tf.data.Dataset":
    """A tf.data.Dataset of (data, label), or of data where samples have no label; of dicts by names where samples have
    several fields (packed ones are ragged tensors). Options as millrace.numpy.Loader's.

    epoch   the first one's number: where a run that was stopped goes on
    step    the same in batches over all epochs, e.g. `int(optimizer.iterations)`: the first epoch is then what is left
            of it, and the length of the dataset is not known unless that is all. See Batches for states without
            counting

    The dataset has a cardinality, so Keras knows the steps of an epoch. For several workers give each its `rank` and
    `world`; a tf.distribute strategy must not cut it again (AutoShardPolicy.OFF is set).
    """

    def make() -> _plain.Loader:
        return _plain.Loader(path, batch_size, drop_last=drop_last, pictures=pictures, store=store, **options)

    first = make()
    if not len(first):
        raise ValueError(
            f"an epoch has no batch: batch_size {batch_size} is larger than the {first.info['samples']} "
            "samples, and drop_last leaves the rest out"
        )
    epoch, batch = (epoch, 0) if step is None else divmod(step, len(first))
    signature = _signature(first, path, pictures, store, batch_size if drop_last else None)
    generator = _Epochs(make, first, epoch, batch)
    made = tf.data.Dataset.from_generator(
        _unpacked(generator, len(signature)), output_signature=signature if len(signature) > 1 else signature[0]
    )
    settings = tf.data.Options()
    settings.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    if not batch:
        made = made.apply(tf.data.experimental.assert_cardinality(len(first)))
    return made.with_options(settings)


class Batches(tf.train.experimental.PythonState):
    """Batches of tensors, epoch after epoch, for a training loop of your own, with a position that tf.train.Checkpoint
    saves:

        batches = Batches("/data/imagenet/train", 256, shuffle=True, seed=1, drop_last=True, pictures={"size": 224})
        checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, batches=batches)
        for epoch in range(batches.epoch, 90):
            for images, labels in batches:
                ...
                checkpoint.save(...)      # at any batch; restore in a new process goes on behind it

    Options as millrace.numpy.Loader's. `get_state` and `set_state` do the same without a Checkpoint."""

    def __init__(self, path: "str | os.PathLike[str]", batch_size: int = 1, **options: Any) -> None:
        self._loader = _plain.Loader(path, batch_size, **options)

    def __len__(self) -> int:
        return len(self._loader)

    @property
    def epoch(self) -> int:
        """The epoch that runs, or will."""
        return self._loader.state_dict()["epoch"]

    def __iter__(self) -> Iterator[Any]:
        for item in self._loader:
            parts = _parts(item)
            if item.fields is not None:
                yield {n: v if isinstance(v, tf.RaggedTensor) else tf.convert_to_tensor(v) for n, v in parts[0].items()}
                continue
            x = tf.convert_to_tensor(parts[0])
            yield x if len(parts) == 1 else (x, tf.convert_to_tensor(parts[1]))

    def get_state(self) -> dict[str, Any]:
        """The position behind the last batch that was delivered."""
        return self._loader.state_dict()

    def set_state(self, state: dict[str, Any]) -> None:
        """The next iteration continues there."""
        self._loader.load_state_dict(state)

    def serialize(self) -> str:
        """For tf.train.Checkpoint: the state as text."""
        return json.dumps(self.get_state())

    def deserialize(self, string_value: str | bytes) -> None:
        """For tf.train.Checkpoint: continues at the state in this text."""
        self.set_state(json.loads(string_value))

    def close(self) -> None:
        """Ends the threads."""
        self._loader.close()


def _unpacked(generator: _Epochs, parts: int) -> Any:
    """A dataset of one part has it without a tuple around."""
    return generator if parts > 1 else lambda: (batch[0] for batch in generator())
