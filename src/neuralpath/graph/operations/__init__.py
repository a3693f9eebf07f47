"""From torch operations to nodes: one function for each way of writing a step, one table of them all.

To read another operation, write a function ``(build, *arguments) -> Signal`` in the module it belongs to and
enter it in the table with ``reads``. It raises ``Refused`` with a reason where the operation, as used, has no
meaning on a path.
"""

from neuralpath.graph.operations import activations, linear_layers, pools, selections, sums, views
from neuralpath.graph.operations.table import INNER_SOFTMAX, OPERATIONS, REASONS, SOFTMAXES, WITHOUT_PATHS

__all__ = [
    "INNER_SOFTMAX",
    "OPERATIONS",
    "REASONS",
    "SOFTMAXES",
    "WITHOUT_PATHS",
    "activations",
    "linear_layers",
    "pools",
    "selections",
    "sums",
    "views",
]
