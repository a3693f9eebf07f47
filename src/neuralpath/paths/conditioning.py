"""The path kernel bounds the slowest direction of training (P1 proposition 3.3), by listing paths."""

from copy import deepcopy
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from neuralpath.graph import PathGraph, checked_graph, chosen_output
from neuralpath.kernels import spectrum
from neuralpath.paths.enumeration import PATH_LIMIT, path_features, path_values
from neuralpath.paths.inputs import Batch, Network


@dataclass(frozen=True, slots=True, eq=False)
class EigenvalueBound:
    r"""Both sides of P1 proposition 3.3, for every eigenvalue; eigenvalues are sorted, largest first.

    The proposition is about the last of each.

    Args:
        tangent: The eigenvalues of the value tangent kernel :math:`K^V`.
        path: The eigenvalues of the path kernel :math:`H`.
        stretch: :math:`\rho_{max}(\nabla v \nabla v^\top)`.
    """

    tangent: Float[Tensor, " batch"]
    path: Float[Tensor, " batch"]
    stretch: Float[Tensor, ""]

    @property
    def bound(self) -> Float[Tensor, " batch"]:
        """The right-hand side: eigenvalues of the path kernel times the stretch."""
        return self.path * self.stretch


def eigenvalue_bound(
    network: Network, x: Batch, *, outputs: int | None = None, limit: int = PATH_LIMIT
) -> EigenvalueBound:
    r"""The eigenvalues of the value tangent kernel and their bound by those of the path kernel.

    .. math:: \rho_{min}(K^V) \le \rho_{min}(H)\, \rho_{max}(\nabla v \nabla v^\top), \qquad
        K^V = \Phi^\top \nabla v \nabla v^\top \Phi, \quad H = \Phi^\top \Phi

    Symbols: :math:`\Phi` are the path features and :math:`\nabla v` the derivatives of the path values by the weights,
    both by bundles of paths with the same weights. The bound holds for every eigenvalue, counted from the largest,
    since :math:`u^\top K^V u \le \rho_{max} \, u^\top H u` for every :math:`u`. So near-duplicate inputs, which make
    :math:`H` ill-conditioned, leave a direction that no training learns quickly.

    Args:
        network: A module or its path graph.
        x: The examples.
        outputs: The index of one output unit; ``None`` where all outputs share their paths.
        limit: The largest number of paths, times outputs, that is listed.

    Raises:
        ValueError: There are more paths than ``limit``, weights are tied, ``x`` does not fit, or the outputs do not
            share their paths and ``outputs`` is not given.

    Reference: P1 proposition 3.3. Cost: all paths are listed, times the weights: for small networks only.

    >>> import neuralpath as npath
    >>> sides = eigenvalue_bound(npath.nets.FC(3, width=6, depth=3), torch.randn(2, 3))
    >>> bool((sides.tangent <= sides.bound).all())
    True
    """
    graph = checked_graph(network, x=x)
    unit = chosen_output(graph, outputs)
    features = path_features(graph, x, bundled=True, outputs=unit, limit=limit).detach().double()
    derivatives = _value_derivatives(graph, unit, limit)
    gradients = features @ derivatives
    tangent, path = (spectrum(factor @ factor.T).to(x.dtype) for factor in (gradients, features))
    return EigenvalueBound(tangent, path, torch.linalg.matrix_norm(derivatives, 2).square().to(x.dtype))


def _value_derivatives(graph: PathGraph, output: int, limit: int) -> Float64[Tensor, "path weight"]:
    """Derivatives of the path values by the weights of linear nodes and biases."""
    with torch.inference_mode(False), torch.enable_grad():
        # A copy, since the derivatives by weights that are not trained count too.
        graph = replace(graph, model=deepcopy(graph.model).requires_grad_())
        values = path_values(graph, bundled=True, outputs=output, limit=limit)
        names = {name for node in graph.weights() for name in node.parameters}
        params = [tensor for name, tensor in graph.params.items() if name in names]
        basis = torch.eye(len(values), dtype=values.dtype, device=values.device)
        parts = torch.autograd.grad(values, params, basis, is_grads_batched=True, materialize_grads=True)
    return torch.cat([part.flatten(1) for part in parts], dim=1).double()
