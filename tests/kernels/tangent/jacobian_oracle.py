"""The tangent kernel from explicit Jacobians by ``torch.func``, for every pair of outputs."""

import warnings

import torch
from torch import Tensor, nn
from torch.func import functional_call, jacrev


def jacobian(model: nn.Module, x: Tensor, names: list[str] | None = None) -> Tensor:
    """Gradients of every output by every parameter that needs one, one example at a time: (batch, output, entry)."""
    params = {n: p for n, p in model.named_parameters() if p.requires_grad and (names is None or n in names)}
    of_one = _by_autograd if getattr(model, "beyond_functional_transforms", False) else _by_jacrev
    return torch.stack([of_one(model, params, example[None]) for example in x])


def _by_jacrev(model: nn.Module, params: dict[str, Tensor], x: Tensor) -> Tensor:
    detached = {name: p.detach() for name, p in params.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says which operations it batches slowly
        found = jacrev(lambda given: functional_call(model, given, (x,)).reshape(-1))(detached)
    return torch.cat([entry.reshape(len(entry), -1) for entry in found.values()], 1)


def _by_autograd(model: nn.Module, params: dict[str, Tensor], x: Tensor) -> Tensor:
    rows = []
    for y in model(x).reshape(-1):
        found = torch.autograd.grad(y, list(params.values()), retain_graph=True, materialize_grads=True)
        rows.append(torch.cat([gradient.flatten() for gradient in found]))
    return torch.stack(rows)


def kernel_by_jacobians(model: nn.Module, x1: Tensor, x2: Tensor | None = None, names=None) -> Tensor:
    """K for all pairs of outputs: (batch1, batch2, output, output)."""
    one = jacobian(model, x1, names)
    two = one if x2 is None else jacobian(model, x2, names)
    return torch.einsum("iop,jqp->ijoq", one, two)


def mean_of(full: Tensor) -> Tensor:
    """The mean over equal outputs."""
    return full.diagonal(dim1=2, dim2=3).mean(-1)


def assert_close(actual: Tensor, oracle: Tensor, tolerance: float = 1e-9, scale: float | None = None) -> None:
    """Error relative to a scale, by default the largest entry of the oracle, which must not be 0."""
    assert actual.shape == oracle.shape
    if scale is None:
        scale = oracle.abs().max().item()
        assert scale > 0
    error = (actual - oracle).abs().max().item()
    assert error <= tolerance * scale, f"error {error:.2e} at a size of {scale:.2e}"  # NaN fails
