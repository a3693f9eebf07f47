"""The tests that verify exact claims exist."""

import ast
from pathlib import Path

import pytest

from neuralpath.papers.claims.all_claims import check_claims
from neuralpath.papers.claims.rows import Records

ROOT = Path(__file__).parents[3]
TESTS = {
    "C1": (
        "paths/test_enumeration.py::test_enumeration_equals_the_output_and_the_library",
        "paths/test_enumeration.py::test_bundles_share_weights_and_give_the_same_output",
        "paths/test_enumeration.py::test_features_times_values_are_the_output_of_any_graph",
        "paths/test_enumeration.py::test_output_is_the_inner_product_of_feature_and_value",
    ),
    "C2": (
        "paths/test_enumeration.py::test_scaling_the_input_scales_the_output_and_leaves_the_gates_alone",
        "paths/test_enumeration.py::test_opposite_labels_on_one_ray_cannot_be_memorized",
    ),
    "C3": (
        "kernels/path/test_path_kernel.py::test_dense_kernel_is_gram_times_overlaps",
        "kernels/path/test_path_kernel.py::test_kernel_is_the_mean_over_all_signs",
        "kernels/path/test_path_kernel.py::test_kernel_equals_listed_paths",
    ),
    "C4": (
        "kernels/path/test_path_kernel.py::test_theorem_for_dense_networks",
        "kernels/path/test_path_kernel.py::test_expected_tangent_kernel_is_the_mean_over_all_signs",
        "kernels/test_concentration.py::test_distance_falls_with_the_root_of_the_width",
        "kernels/test_concentration.py::test_variance_grows_with_depth",
    ),
    "C5": (
        "kernels/test_dynamics.py::test_features_and_values_move_along_the_gradient_flow",
        "kernels/test_kernel_dynamics.py::test_many_small_steps_are_the_flow",
        "kernels/test_kernel_dynamics.py::test_wide_network_trains_as_its_tangent_kernel_predicts",
    ),
    "C6": (
        "kernels/tangent/test_tangent_parts.py::test_parts_of_soft_gates_equal_jacobians",
        "kernels/tangent/test_tangent_parts.py::test_parts_sum_to_the_whole_and_are_symmetric",
        "kernels/tangent/test_tangent_parts.py::test_a_gated_network_has_no_cross_part",
        "kernels/tangent/test_tangent_parts.py::test_fixed_gates_have_no_feature_part",
    ),
    "C7": (
        "kernels/test_concentration.py::test_smallest_eigenvalue_inequality_of_dense_networks",
        "kernels/test_concentration.py::test_smallest_eigenvalue_inequality_of_other_graphs",
    ),
    "C17": (
        "kernels/limit/test_wide_networks.py::test_weights_as_torch_has_them_reach_both_limits_of_the_papers",
        "kernels/limit/test_wide_networks.py::test_tangent_kernels_of_wide_networks_are_near_the_limit",
        "kernels/limit/test_reference.py::test_the_general_reading_gives_the_stored_values",
    ),
    "C18": (
        "kernels/limit/test_wide_networks.py::test_soft_gates_reach_the_limit_and_its_parts",
        "kernels/limit/test_activations.py::test_the_feature_part_is_the_integral_of_E2",
        "kernels/limit/test_laws.py::test_parts_sum_to_the_whole_and_their_transposes_change_roles",
        "kernels/limit/test_laws.py::test_hard_gates_have_no_feature_part",
    ),
    "C19": (
        "paths/test_enumeration.py::test_number_of_paths_of_a_dense_network",
        "paths/test_enumeration.py::test_number_of_paths_of_a_circular_cnn",
        "paths/test_enumeration.py::test_number_of_paths_of_a_residual_network",
    ),
    "C20": ("kernels/path/test_path_kernel.py::test_circular_convolution_with_pooling_is_rotation_invariant",),
    "C21": (
        "kernels/path/test_path_kernel.py::test_residual_kernel_is_the_sum_over_all_subsets_and_its_theorem",
        "paths/test_gate_statistics.py::test_kernels_of_all_subnetworks_sum_to_the_path_kernel",
    ),
    "C22": (
        "kernels/path/test_path_kernel.py::test_theorem_for_convolution_with_pooling",
        "kernels/path/test_path_kernel.py::test_residual_kernel_is_the_sum_over_all_subsets_and_its_theorem",
        "kernels/test_concentration.py::test_distance_falls_with_the_root_of_the_width",
    ),
    "C23": ("kernels/path/test_path_kernel.py::test_order_of_gate_layers_matters_for_convolution_only",),
    "C29": (
        "kernels/limit/test_wide_networks.py::test_path_kernels_of_wide_networks_are_near_the_limit",
        "papers/experiments/test_base_kernels.py::test_overlaps_in_the_limit_tend_to_a_half_and_their_product_falls_as_the_third_power",
    ),
    "C38": ("kernels/test_diagnostics.py::test_near_duplicate_inputs_make_the_path_kernel_ill_conditioned",),
}
"""By claim, the tests that verify it: a file below ``tests/`` and a function in it."""


def test_every_exact_claim_has_tests():
    assert set(TESTS) == {row.number for row in check_claims(Records({})) if "verified by the test suite" in row.ours}


@pytest.mark.parametrize("number", TESTS)
def test_the_tests_of_an_exact_claim_exist(number):
    for named in TESTS[number]:
        path, _, function = named.partition("::")
        tree = ast.parse((ROOT / "tests" / path).read_text())
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, named
