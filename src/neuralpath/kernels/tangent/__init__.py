"""The empirical tangent kernel and its parts, layer by layer, without Jacobians."""
