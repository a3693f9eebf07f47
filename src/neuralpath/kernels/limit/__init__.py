"""Infinite width as a reading: covariances of pre-activations and tangent kernels, carried through a graph.

In the limit of many channels the pre-activations of a random network are normal, equal in law and independent from
channel to channel. So the state of a node is one covariance for each pair of examples and positions, and an activation
acts on it by expectations over two normal variables (``activations``, ``mixtures``, ``quadrature``). Chains of layers
with ReLUs have compiled loops of their own (``fused_*``).
"""
