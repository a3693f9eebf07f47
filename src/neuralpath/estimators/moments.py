"""Means and centered products of features and targets, accumulated in one pass over batches."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from neuralpath.estimators.cholesky import factorize


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    r"""The number of examples so far, the means, and the products of deviations from the means.

    .. math:: S = \sum_i (f_i - \bar f)(f_i - \bar f)^\top, \qquad R = \sum_i (f_i - \bar f)(y_i - \bar y)^\top

    Symbols: :math:`S` is ``scatter``, :math:`R` is ``cross``. They are centered batch by batch, so large means do not
    cost precision.
    """

    count: int
    feature_mean: Float64[np.ndarray, " m"]
    target_mean: Float64[np.ndarray, " k"]
    scatter: Float64[np.ndarray, "m m"]
    cross: Float64[np.ndarray, "m k"]

    def add(self, features: Float64[np.ndarray, "_n m"], targets: Float64[np.ndarray, "_n k"]) -> "Moments":
        """The moments with another batch; the arrays of products, which may be large, are changed in place.

        Reference: Chan, Golub and LeVeque 1983, "Algorithms for computing the sample variance".
        """
        size, total = len(features), self.count + len(features)
        feature_mean, target_mean = features.mean(0), targets.mean(0)
        features, targets = features - feature_mean, targets - target_mean
        shift, target_shift = feature_mean - self.feature_mean, target_mean - self.target_mean
        weight = self.count * size / total
        self.scatter[...] += features.T @ features
        self.scatter[...] += weight * np.outer(shift, shift)
        self.cross[...] += features.T @ targets + weight * np.outer(shift, target_shift)
        share = size / total
        means = self.feature_mean + share * shift, self.target_mean + share * target_shift
        return Moments(total, *means, self.scatter, self.cross)

    def copy(self) -> "Moments":
        """A copy, to which batches can be added without changing this one."""
        return replace(self, scatter=self.scatter.copy(), cross=self.cross.copy())

    def solve(self, ridge: float, *, intercept: bool) -> tuple[Float64[np.ndarray, "m k"], Float64[np.ndarray, " k"]]:
        r"""Coefficients and intercept of ridge regression.

        .. math:: w = (S + \lambda I)^{-1} R, \qquad b = \bar y - w^\top \bar f

        with an intercept, which is not penalized. Without an intercept the products are not centered, and b = 0.
        """
        scatter, cross = self.scatter.copy(), self.cross
        if not intercept:
            scatter += self.count * np.outer(self.feature_mean, self.feature_mean)
            cross = cross + self.count * np.outer(self.feature_mean, self.target_mean)
        weights = factorize(scatter, ridge, name="matrix of feature products").solve(cross)
        if not intercept:
            return weights, np.zeros(cross.shape[1])
        return weights, self.target_mean - self.feature_mean @ weights


def empty_moments(m: int, k: int) -> Moments:
    """The moments of m features and k targets before the first batch."""
    return Moments(0, np.zeros(m), np.zeros(k), np.zeros((m, m)), np.zeros((m, k)))
