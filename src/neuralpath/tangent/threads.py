"""Blocks of examples side by side, each by a thread that does all of its work alone."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from neuralpath.bits.compiled import n_threads


def side_by_side(run: Callable[..., None], n_examples: int, step: int, rooms: Callable[[], tuple[Tensor, ...]]) -> None:
    """Call ``run(examples, *rooms)`` for all blocks of ``step`` examples, each thread with memory of its own.

    Not torch's threads, which share each operation: between small operations they wait for each other, and for long
    where other programs take their processors.
    """
    starts = iter(range(0, n_examples, step))  # shared: a thread takes the next block when it is done with one

    def work(alone: bool) -> None:
        if not alone:
            torch.set_num_threads(1)  # of this thread, which ends with the call
        memory = rooms()
        for start in starts:
            run(slice(start, min(start + step, n_examples)), *memory)

    wanted, count = torch.get_num_threads(), min(n_threads(), math.ceil(n_examples / step))
    if count <= 1:
        work(alone=True)
        return
    try:
        with ThreadPoolExecutor(count) as pool:
            for future in [pool.submit(work, False) for _ in range(count)]:
                future.result()
    finally:
        torch.set_num_threads(wanted)  # what threads that begin later start with
