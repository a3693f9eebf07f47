"""The precision in which quantities are computed."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_DEVICES = ("cpu", "cuda")


@contextmanager
def without_autocast() -> Iterator[None]:
    """Compute in the precision of the tensors, even under torch's autocast. A context manager and a decorator.

    Autocast would round products to a few digits, and results would still have the dtype of exact ones.

    >>> with torch.autocast("cpu", torch.bfloat16), without_autocast():
    ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
    torch.float32
    """
    with ExitStack() as stack:
        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        yield
