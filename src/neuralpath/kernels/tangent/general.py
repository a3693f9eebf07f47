"""The general way to per-example gradients, for parameters that are read in ways the rules do not know."""

import logging
import warnings
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from neuralpath.kernels.tangent.network import Network, flat_outputs

_log = logging.getLogger("neuralpath")


def written_gradients(
    network: Network, x: Tensor, names: Sequence[str], outputs: Sequence[int], at_once: int
) -> Float[Tensor, "batch output entry"]:
    """Gradients of some outputs by some parameters, written out for each example, ``at_once`` examples at a time.

    By ``torch.func.vmap`` where torch can batch all operations of the network, else example by example.
    """
    params = {name: network.parameters[name].detach() for name in names}

    def one(given: dict[str, Tensor], example: Tensor) -> Tensor:
        return flat_outputs(network.run(example[None], given), 1, example[None])[0, list(outputs)]

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says which operations it batches slowly
            found = torch.func.vmap(torch.func.jacrev(one), in_dims=(None, 0), chunk_size=at_once)(params, x)
    except Exception as error:  # whatever torch cannot batch; a fault of the network itself shows again in the loop
        _log.info("torch.func.vmap cannot batch the network (%s): gradients example by example", type(error).__name__)
        return torch.stack([_alone(network, example, names, outputs) for example in x])
    return torch.cat([found[name].flatten(2) for name in names], 2).detach()


def _alone(
    network: Network, example: Tensor, names: Sequence[str], outputs: Sequence[int]
) -> Float[Tensor, "output entry"]:
    parameters = [network.parameters[name] for name in names]
    y = flat_outputs(network.run(example[None]), 1, example[None])[0]
    rows = []
    for output in outputs:
        found: Sequence[Tensor | None] = [None] * len(parameters)
        if y.requires_grad:
            found = torch.autograd.grad(y[output], parameters, retain_graph=True, allow_unused=True)
        flat = [
            torch.zeros_like(p).flatten() if gradient is None else gradient.detach().flatten()
            for p, gradient in zip(parameters, found, strict=True)
        ]
        rows.append(torch.cat(flat))
    return torch.stack(rows)
