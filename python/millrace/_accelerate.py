"""millrace.torch.DataLoader in accelerator.prepare(): the loader stays what it is, because it reads its rank's part by
itself, and takes over what accelerate's own loaders do: batches go to the accelerator's device, and accelerate learns
when an epoch ends (gradient accumulation) and how full the last batch of all ranks is (gather_for_metrics). Its
`save_state` and `load_state` keep the loader's position. accelerate is not imported here."""

import sys
from collections.abc import Iterator
from typing import Any


class Prepared:
    """What accelerate wants to see of a loader that is prepared."""

    def __init__(self, device: Any, gradient_state: Any) -> None:
        self.device, self.gradient_state = device, gradient_state
        self.end_of_dataloader = False
        self.remainder = -1  # samples of the last batch of all ranks together; -1: unknown

    def batches(self, iteration: Any, remainder: int, moves: bool) -> "Batches":
        """An epoch of the loader. `moves`: batches are not on their device yet."""
        return Batches(self, iteration, remainder, moves)


class Batches:
    """An iteration that accelerate watches."""

    def __init__(self, prepared: Prepared, iteration: Any, remainder: int, moves: bool) -> None:
        self._prepared, self._iteration, self._moves = prepared, iteration, moves
        prepared.end_of_dataloader, prepared.remainder = False, remainder
        prepared.gradient_state._add_dataloader(prepared)
        self._open = True

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self._iteration)

    def _close(self) -> None:
        if self._open:
            self._open = False
            self._prepared.gradient_state._remove_dataloader(self._prepared)

    def __next__(self) -> Any:
        try:
            batch = next(self._iteration)
        except BaseException:
            self._close()
            raise
        self._prepared.end_of_dataloader = not len(self._iteration)
        if self._moves:
            batch = sys.modules["accelerate.utils"].send_to_device(batch, self._prepared.device, non_blocking=True)
        return batch

    def __del__(self) -> None:
        self._close()


def prepare() -> Prepared | None:
    """For the accelerator that this program has; None: it has none."""
    state = sys.modules.get("accelerate.state")
    if state is None or not state.AcceleratorState._shared_state:
        return None
    return Prepared(state.AcceleratorState().device, state.GradientState())


def remainder(samples: int, world: int, batch: int, drop_last: bool) -> int:
    """Samples in the last batch of all ranks without those that are there twice, where these come last in what
    accelerate gathers; 0: nothing is to be left out; -1: they are in between."""
    twice = -samples % world
    if drop_last or not twice:
        return 0
    last = -(-samples // world) % batch or batch
    return last * world - 1 if twice == 1 else -1
