"""From torch operations to nodes: one function for each operation, and one table of them all.

To support another operation, write a function ``(build, *arguments) -> Signal`` in the module that it belongs to and
enter it in the table with ``reads``. The function raises ``Refused`` with the reason where a use of the operation has
no meaning for paths.
"""

from neuralpath.graph.operations import activations, linear_layers, pools, selections, table, views

__all__ = ["activations", "linear_layers", "pools", "selections", "table", "views"]
