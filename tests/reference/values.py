"""Stored reference values of infinite-width kernels, by name; cases.py says what the networks are.

``reference(name)`` gives a case with its inputs, its output kernel (NNGP) and its tangent kernel, in float64.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from reference.cases import CASES, Case

NAMES = tuple(case.name for case in CASES)


@dataclass(frozen=True, eq=False)
class Reference:
    """A network and what neural-tangents says of it."""

    case: Case
    x: Tensor
    output: Tensor
    tangent: Tensor


@cache
def _arrays() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).with_name("values.npz"), allow_pickle=False) as stored:
        return {name: stored[name].astype(np.float64) for name in stored.files}


def reference(name: str) -> Reference:
    """The case of a name; tensors are copies, free to be changed."""
    case = {case.name: case for case in CASES}[name]
    arrays = (_arrays()[key] for key in (f"inputs/{case.inputs}", f"{name}/output", f"{name}/tangent"))
    return Reference(case, *(torch.from_numpy(array.copy()) for array in arrays))
