"""Diagnostics of kernels against dense algebra, hand values and their laws."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import neuralpath as npath
from neuralpath.kernels.diagnostics import (
    LabelEnergySplit,
    alignment,
    centered_alignment,
    condition_number,
    label_energy,
    label_energy_by_eigenvector,
    spectrum,
)
from neuralpath.kernels.path.path_kernel import path_kernel
from strategies import dense_networks

F64 = torch.float64


def _kernel(n=6, rank=9, seed=0, dtype=F64):
    features = torch.randn(n, rank, generator=torch.Generator().manual_seed(seed), dtype=F64)
    kernel = features @ features.T
    return ((kernel + kernel.T) / 2).to(dtype)


def _labels(n=6, seed=1):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=F64)


def _orthogonal(n, seed=2):
    return torch.linalg.qr(torch.randn(n, n, generator=torch.Generator().manual_seed(seed), dtype=F64)).Q


def _with_eigenvalues(values, seed=2):
    basis = _orthogonal(len(values), seed)
    kernel = basis @ torch.diag(torch.tensor(values, dtype=F64)) @ basis.T
    return (kernel + kernel.T) / 2, basis


# --- label energy


def test_label_energy_equals_a_solve():
    kernel, y = _kernel(), _labels()
    expected = y @ torch.linalg.solve(kernel / kernel.trace(), y)
    torch.testing.assert_close(label_energy(kernel, y), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("n", [1, 4, 7])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_label_energy_of_the_identity_is_n_times_the_squared_length(n, dtype):
    y = torch.arange(1, n + 1)
    energy = label_energy(3 * torch.eye(n, dtype=dtype), y)
    assert energy.dtype == dtype
    assert energy.item() == pytest.approx(n * sum(i * i for i in range(1, n + 1)))


def test_label_energy_of_labels_along_an_eigenvector_is_one_over_its_share():
    kernel, basis = _with_eigenvalues([5.0, 3.0, 2.0])
    for i, share in enumerate([0.5, 0.3, 0.2]):
        assert label_energy(kernel, basis[:, i]).item() == pytest.approx(1 / share)


def test_label_energy_of_several_columns_is_one_value_for_each():
    kernel = _kernel()
    y = torch.stack([_labels(seed=s) for s in (1, 2, 3)], 1)
    energies = label_energy(kernel, y)
    assert energies.shape == (3,)
    for k in range(3):
        torch.testing.assert_close(energies[k], label_energy(kernel, y[:, k]))
    assert label_energy(kernel, y[:, :1]).shape == (1,)
    assert label_energy(kernel, y[:, 0]).shape == ()


def test_label_energy_has_no_range():
    """The kernel of a deep network is near 10^50 and beyond; only its shape counts."""
    kernel, y = _kernel(), _labels()
    for factor in (1e-300, 1e300):
        torch.testing.assert_close(label_energy(kernel * factor, y), label_energy(kernel, y), rtol=1e-10, atol=0)


def test_split_sums_to_the_label_energy_and_is_by_eigenvectors():
    kernel, y = _kernel(), _labels()
    split = label_energy_by_eigenvector(kernel, y)
    values, vectors = torch.linalg.eigh(kernel / kernel.trace())
    torch.testing.assert_close(split.eigenvalues, values.flip(0))
    torch.testing.assert_close(split.projections, (vectors.flip(1).T @ y) ** 2)
    torch.testing.assert_close(split.contributions, split.projections / split.eigenvalues)
    torch.testing.assert_close(split.total, label_energy(kernel, y))
    torch.testing.assert_close(split.eigenvalues.sum(), torch.ones((), dtype=F64))
    torch.testing.assert_close(split.projections.sum(), y @ y)
    many = label_energy_by_eigenvector(kernel.float(), torch.stack([y, 2 * y], 1))
    assert many.contributions.shape == (6, 2)
    assert many.total.dtype == torch.float32
    torch.testing.assert_close(many.total[1], 4 * many.total[0])


def test_jitter_is_a_share_of_the_mean_eigenvalue():
    kernel, y = _kernel(), _labels()
    unit = kernel / kernel.trace() + 0.3 / 6 * torch.eye(6, dtype=F64)
    torch.testing.assert_close(label_energy(kernel, y, jitter=0.3), y @ torch.linalg.solve(unit, y))


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_a_singular_kernel_is_refused_and_the_named_jitter_is_enough(dtype):
    kernel = _kernel(rank=3, dtype=dtype)
    kernel = (kernel + kernel.T) / 2
    y = _labels()
    with pytest.raises(ValueError, match=r"`kernel` is singular.*`jitter=`") as info:
        label_energy(kernel, y)
    enough = float(str(info.value).split("pass `jitter=` (")[1].split(" ")[0])
    assert math.isfinite(label_energy(kernel, y, jitter=enough).item())
    with pytest.raises(ValueError, match="`kernel` is singular"):
        label_energy(kernel, y, jitter=enough / 100)


def test_the_precision_of_the_kernels_own_dtype_counts():
    kernel, _ = _with_eigenvalues([1.0, 0.5, 1e-8])
    y = _labels(3)
    expected = y @ torch.linalg.solve(kernel / kernel.trace(), y)
    assert label_energy(kernel, y).item() == pytest.approx(expected.item(), rel=1e-6)
    with pytest.raises(ValueError, match=r"3 times .*float32"):
        label_energy(kernel.float(), y)


@given(st.integers(1, 7), st.integers(0, 2**31 - 1), st.sampled_from([2.0**-40, 0.25, 8.0, 2.0**70]))
@settings(max_examples=40)
def test_laws_of_the_label_energy(n, seed, factor):
    kernel, y = _kernel(n, n + 4, seed), _labels(n, seed)
    energy = label_energy(kernel, y)
    torch.testing.assert_close(label_energy(factor * kernel, y), energy, rtol=1e-9, atol=0)
    torch.testing.assert_close(label_energy(kernel, -4 * y), 16 * energy, rtol=1e-9, atol=0)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(label_energy(kernel[order][:, order], y[order]), energy, rtol=1e-7, atol=0)
    # The eigenvalues of the unit-trace kernel are at most 1, and their mean is 1/n.
    assert energy >= (y @ y) * (1 - 1e-9)
    assert label_energy(kernel, y, jitter=0.5) <= energy * (1 + 1e-9)


# --- spectrum and condition number


@pytest.mark.parametrize("factor", [1.0, 1e-250, 1e250])
def test_spectrum_is_descending_and_that_of_dense_algebra(factor):
    kernel, _ = _with_eigenvalues([2.0, 7.0, 0.5, 1.0])
    torch.testing.assert_close(spectrum(factor * kernel) / factor, torch.tensor([7.0, 2.0, 1.0, 0.5], dtype=F64))


def test_spectrum_of_a_zero_kernel_is_zero():
    assert spectrum(torch.zeros(2, 2)).tolist() == [0.0, 0.0]


def test_condition_number_equals_numpys_and_does_not_depend_on_scale():
    kernel = _kernel()
    assert condition_number(kernel).item() == pytest.approx(torch.linalg.cond(kernel).item(), rel=1e-10)
    assert condition_number(kernel * 1e200).item() == pytest.approx(condition_number(kernel).item())
    assert condition_number(torch.eye(3)).item() == 1.0
    assert condition_number(kernel.float()).dtype == torch.float32


def test_condition_number_of_a_singular_kernel_is_infinite():
    assert condition_number(torch.ones(3, 3)).item() == math.inf
    assert condition_number(_kernel(rank=3)).item() == math.inf
    kernel, _ = _with_eigenvalues([1.0, 0.5, 1e-9])
    assert condition_number(kernel).item() == pytest.approx(1e9, rel=1e-5)
    assert condition_number(kernel.float()).item() == math.inf


def test_near_duplicate_inputs_make_the_path_kernel_ill_conditioned():
    """C38: the condition number grows without bound as two inputs approach each other, like 1 / distance^2."""
    generator = torch.Generator().manual_seed(3)
    model = npath.nets.FC(6, 40, 4, generator=generator).double()
    graph = npath.trace(model, torch.ones(1, 6, dtype=F64))
    x = torch.randn(5, 6, generator=generator, dtype=F64)
    direction = torch.randn(6, generator=generator, dtype=F64)
    distances = [1.0, 1e-1, 1e-2, 1e-4, 1e-5, 1e-6]
    conditions = []
    for distance in distances:
        pair = torch.cat([x, x[:1] + distance * direction / direction.norm()])
        conditions.append(condition_number(path_kernel(graph, pair)).item())
    assert all(a < b for a, b in itertools.pairwise(conditions))
    # Below the distance at which no gate differs any more, only the inputs' Gram matrix tells the two apart.
    assert conditions[-1] / conditions[-2] == pytest.approx(100, rel=0.05)
    assert conditions[-1] > 1e9
    duplicate = torch.cat([x, x[:1]])
    assert condition_number(path_kernel(graph, duplicate)).item() == math.inf
    y = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0], dtype=F64)
    with pytest.raises(ValueError, match="`kernel` is singular"):
        label_energy(path_kernel(graph, duplicate), y)


# --- alignments


def _cosine(a, b):
    return (a * b).sum() / (a.norm() * b.norm())


def test_alignment_equals_explicit_sums():
    kernel, other, y = _kernel(), _kernel(seed=5), _labels()
    one_hot = torch.nn.functional.one_hot(torch.tensor([0, 1, 2, 0, 1, 1]), 3)
    torch.testing.assert_close(alignment(kernel, y), _cosine(kernel, torch.outer(y, y)))
    torch.testing.assert_close(alignment(kernel, y[:, None]), _cosine(kernel, torch.outer(y, y)))
    torch.testing.assert_close(alignment(kernel, one_hot), _cosine(kernel, (one_hot @ one_hot.T).double()))
    torch.testing.assert_close(alignment(kernel, other), _cosine(kernel, other))


def test_alignment_by_hand():
    y = torch.tensor([1, -1, -1])
    assert alignment(torch.outer(y, y).float(), y).item() == pytest.approx(1.0)
    assert alignment(torch.eye(3), y).item() == pytest.approx(1 / math.sqrt(3))
    assert alignment(torch.diag(torch.tensor([1.0, 0.0])), torch.diag(torch.tensor([0.0, 1.0]))).item() == 0.0
    assert alignment(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([1.0, -1.0])).item() == pytest.approx(
        -1 / math.sqrt(2)
    )


def test_centered_alignment_equals_centring_matrices():
    kernel, other = _kernel(), _kernel(seed=5)
    center = torch.eye(6, dtype=F64) - torch.full((6, 6), 1 / 6, dtype=F64)
    expected = _cosine(center @ kernel @ center, center @ other @ center)
    torch.testing.assert_close(centered_alignment(kernel, other), expected)
    assert centered_alignment(kernel.float(), other).dtype == torch.float32


@given(st.integers(2, 7), st.integers(0, 2**31 - 1), st.floats(1e-3, 1e3), st.floats(-10, 10))
@settings(max_examples=40)
def test_laws_of_centered_alignment(n, seed, factor, shift):
    kernel, other = _kernel(n, 3, seed), _kernel(n, 4, seed + 1)
    value = centered_alignment(kernel, other)
    assert -1e-12 <= value <= 1 + 1e-12  # both are positive semi-definite
    assert centered_alignment(kernel, kernel).item() == pytest.approx(1.0, rel=1e-12)
    torch.testing.assert_close(centered_alignment(other, kernel), value)
    torch.testing.assert_close(centered_alignment(factor * kernel, other + shift), value, rtol=1e-6, atol=1e-8)
    turn = _orthogonal(3, seed)
    features = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=F64)
    turned = features @ turn
    turned = turned @ turned.T
    torch.testing.assert_close(centered_alignment(kernel, (turned + turned.T) / 2), torch.ones((), dtype=F64))


@given(dense_networks())
@settings(max_examples=10)
def test_diagnostics_of_a_networks_own_kernel(drawn):
    model, x = drawn.build()
    kernel = path_kernel(npath.trace(model, x[:1]), x)
    values = spectrum(kernel)
    assert values.sum().item() == pytest.approx(kernel.trace().item(), rel=1e-9, abs=1e-12)
    assert values.min() >= -1e-9 * values.abs().max()
    if kernel.any():
        assert alignment(kernel, kernel).item() == pytest.approx(1.0)
        assert condition_number(kernel) >= 1


# --- arguments


FUNCTIONS = {
    "label_energy": lambda k: label_energy(k, torch.ones(3)),
    "split": lambda k: label_energy_by_eigenvector(k, torch.ones(3)),
    "spectrum": spectrum,
    "condition_number": condition_number,
    "alignment": lambda k: alignment(k, torch.ones(3)),
    "centered_alignment": lambda k: centered_alignment(k, torch.eye(3)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.usefixtures("without_type_checks")
def test_what_is_no_kernel_is_refused(name):
    function = FUNCTIONS[name]
    with pytest.raises(TypeError, match=r"`kernel1?`.*list"):
        function([[1.0]])
    with pytest.raises(TypeError, match=r"`kernel1?`.*int64.*\(3, 3\)"):
        function(torch.eye(3).long())
    with pytest.raises(TypeError, match=r"`kernel1?`.*float16"):
        function(torch.eye(3).half())
    for shape in [(3,), (3, 2), (0, 0), (3, 3, 1)]:
        with pytest.raises(ValueError, match=r"`kernel1?`.*square"):
            function(torch.ones(shape))
    kernel = torch.eye(3)
    kernel[1, 2] = torch.nan
    with pytest.raises(ValueError, match=r"`kernel1?` has NaN.*1 of.*row 1, column 2"):
        function(kernel)
    if name != "spectrum":
        with pytest.raises(ValueError, match=r"`kernel1?` is zero"):
            function(torch.zeros(3, 3))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (F64, 1e-12)])
def test_symmetry_is_checked_to_rounding(dtype, tolerance):
    for gap, refused in ((0.5, False), (2.0, True)):
        kernel = torch.eye(3, dtype=dtype)
        kernel[0, 1] = gap * tolerance
        if refused:
            with pytest.raises(ValueError, match=r"`kernel` is not symmetric"):
                spectrum(kernel)
        else:
            spectrum(kernel)


@pytest.mark.usefixtures("without_type_checks")
def test_labels_that_do_not_fit_are_refused():
    kernel = torch.eye(3)
    for y in (torch.ones(2), torch.ones(4, 2), torch.ones(()), torch.ones(3, 1, 1)):
        with pytest.raises(ValueError, match=r"`y`.*3 examples"):
            label_energy(kernel, y)
    with pytest.raises(ValueError, match=r"`other`.*3 examples"):
        alignment(kernel, torch.eye(4))
    with pytest.raises(TypeError, match=r"`y`.*list"):
        label_energy(kernel, [1, 2, 3])
    with pytest.raises(TypeError, match=r"`other`.*bool"):
        alignment(kernel, torch.tensor([True, False, True]))
    with pytest.raises(ValueError, match=r"`y` has NaN.*index 1"):
        label_energy(kernel, torch.tensor([1.0, torch.inf, torch.nan]))
    with pytest.raises(ValueError, match="`other` is zero"):
        alignment(kernel, torch.zeros(3))
    with pytest.raises(ValueError, match="`other` is zero"):
        alignment(kernel, torch.zeros(3, 3))
    with pytest.raises(ValueError, match=r"`kernel1` and `kernel2`.*3 and 2"):
        centered_alignment(kernel, torch.eye(2))


@pytest.mark.parametrize("constant", [0.1, 3.0])
def test_a_constant_kernel_has_no_centered_alignment(constant):
    kernel = torch.full((4, 4), constant)
    with pytest.raises(ValueError, match="`kernel2` is constant"):
        centered_alignment(torch.eye(4), kernel)
    with pytest.raises(ValueError, match="`kernel1` is constant"):
        centered_alignment(kernel, torch.eye(4))
    with pytest.raises(ValueError, match="`kernel1` is constant"):
        centered_alignment(torch.eye(1), torch.eye(1))


def test_kernels_that_are_not_positive_are_refused():
    indefinite = torch.tensor([[1.0, 2.0], [2.0, 1.0]])
    assert spectrum(indefinite).tolist() == pytest.approx([3.0, -1.0])
    energy = [lambda k: label_energy(k, torch.ones(2)), lambda k: label_energy(k, torch.ones(2), jitter=5.0)]
    for function in (condition_number, *energy):
        with pytest.raises(ValueError, match=r"`kernel`.*-3\.3e-01"):
            function(indefinite)
        with pytest.raises(ValueError, match=r"`kernel`.*-1\.0e\+00"):
            function(-torch.eye(2))


@pytest.mark.parametrize("jitter", [-1e-9, math.inf, math.nan])
def test_jitter_must_be_a_finite_share(jitter):
    with pytest.raises(ValueError, match="`jitter`"):
        label_energy(torch.eye(2), torch.ones(2), jitter=jitter)


@pytest.mark.usefixtures("without_type_checks")
def test_a_split_is_checked_at_construction():
    with pytest.raises(ValueError, match="`contributions`"):
        LabelEnergySplit(torch.ones(2), torch.ones(3), torch.ones(3))


def test_arrays_and_tiles_are_kernels_too():
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=F64)
    kernel, y = x @ x.T, _labels()
    tiles = npath.LinearKernel().tiles(x)
    for other in (kernel.numpy(), tiles):
        assert torch.equal(spectrum(other), spectrum(kernel))
        assert torch.equal(alignment(other, y.numpy()), alignment(kernel, y))
        torch.testing.assert_close(alignment(kernel, other), torch.ones((), dtype=F64))
        assert torch.equal(centered_alignment(other, kernel), centered_alignment(kernel, kernel))
        energy = label_energy(other, np.asarray(y), jitter=0.1)
        assert torch.equal(energy, label_energy(kernel, y, jitter=0.1))
