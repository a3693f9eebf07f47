# ruff: noqa: RUF001 - the claims have formulas with Greek letters
"""All claims of the papers, in their words made short, with the tests and the rules that judge them."""

from neuralpath.papers.claims import (
    gate_claims,
    kernel_claims,
    memory_claims,
    noise_claims,
    order_claims,
    regime_claims,
    width_claims,
)
from neuralpath.papers.claims.checks import Claim, Exact

_PATHS = "tests/paths/test_enumeration.py::"
_KERNEL = "tests/kernels/path/test_path_kernel.py::"
_WIDE = "tests/kernels/limit/test_wide_networks.py::"
_PARTS = "tests/kernels/tangent/test_tangent_parts.py::"
_DRAWS = "tests/kernels/test_concentration.py::"

_ROUNDING = "at most 8 · (number of summed terms) · ε of the largest entry, ε = 2.2e-16"

CLAIMS: tuple[Claim, ...] = (
    Claim(
        "C1", "the output is the inner product of path feature and path value", "P0 4, P1 2.2, P2 3.4",
        exact=Exact(
            (f"{_PATHS}test_enumeration_equals_the_output_and_the_library",
             f"{_PATHS}test_bundles_share_weights_and_give_the_same_output",
             f"{_PATHS}test_features_times_values_are_the_output_of_any_graph",
             f"{_PATHS}test_output_is_the_inner_product_of_feature_and_value"),
            "relative deviation at most 1e-7, against a list of all paths 1e-12",
        ),
    ),
    Claim(
        "C2", "without biases features are positively homogeneous, and (x, 1), (x/2, -1) cannot be memorized",
        "P0 2.3, P1 2.1",
        "By training too: without biases no seed gets below the least sum of squares, 1.8; with biases all get below "
        "half of it.",
        exact=Exact(
            (f"{_PATHS}test_scaling_the_input_scales_the_output_and_leaves_the_gates_alone",
             f"{_PATHS}test_opposite_labels_on_one_ray_cannot_be_memorized"),
            "no deviation: equal bit for bit for factors that are powers of two",
        ),
        experiments=("memorization",), judge=memory_claims.pair_on_a_ray,
    ),
    Claim(
        "C3", "FC path kernel = input Gram matrix times the product of gate overlaps", "P0 4.1, P1 2.1, P3 2",
        exact=Exact(
            (f"{_KERNEL}test_dense_kernel_is_gram_times_overlaps", f"{_KERNEL}test_kernel_is_the_mean_over_all_signs",
             f"{_KERNEL}test_kernel_equals_listed_paths"), _ROUNDING,
        ),
    ),
    Claim(
        "C4", "E[K^V] = d σ^(2(d-1)) H; the variance falls with width and grows with depth (the printed bound: E13)",
        "P0 4.1, P1 5.1",
        "At the largest width the mean of the draws is within 1 standard error of the expectation in the median over "
        "entries (0.67 where it is exact); a draw's distance falls from the smallest to the largest width, and its "
        "variance from the largest to the smallest depth, by more than 3 standard errors. The printed bound stands "
        "beside it and decides nothing.",
        exact=Exact(
            (f"{_KERNEL}test_theorem_for_dense_networks",
             f"{_KERNEL}test_expected_tangent_kernel_is_the_mean_over_all_signs",
             f"{_DRAWS}test_distance_falls_with_the_root_of_the_width", f"{_DRAWS}test_variance_grows_with_depth"),
            f"the expectation {_ROUNDING}; the power of the width -1/2 within 5 standard errors",
        ),
        experiments=("theorem",), judge=width_claims.expectation_of_dense_networks,
    ),
    Claim(
        "C5", "de/dt = -K e for small steps", "P1 1.1",
        exact=Exact(
            ("tests/kernels/test_dynamics.py::test_features_and_values_move_along_the_gradient_flow",
             "tests/kernels/test_kernel_dynamics.py::test_many_small_steps_are_the_flow",
             "tests/kernels/test_kernel_dynamics.py::test_wide_network_trains_as_its_tangent_kernel_predicts"),
            "relative deviation at most 1e-6 of a step of 1e-6; a network of width 512 in 15 steps at most 1 %",
        ),
    ),
    Claim(
        "C6", "K = K^V + K^F + K^CROSS; no cross part in a gated network, no feature part with fixed gates",
        "P1 3, 4.1, P2 5.1",
        "In training, at every epoch that was measured, both parts are exactly 0 in every run.",
        exact=Exact(
            (f"{_PARTS}test_parts_of_soft_gates_equal_jacobians",
             f"{_PARTS}test_parts_sum_to_the_whole_and_are_symmetric",
             f"{_PARTS}test_a_gated_network_has_no_cross_part", f"{_PARTS}test_fixed_gates_have_no_feature_part"),
            "relative deviation at most 1e-9 from explicit Jacobians, of the sum 1e-12; the absent parts exactly 0",
        ),
        experiments=("kernel-parts",), judge=kernel_claims.parts_of_fixed_and_learnt_gates,
    ),
    Claim(
        "C7", "ρ_min(K) ≤ ρ_min(H) · ρ_max(∇v ∇vᵀ)", "P1 3.3",
        exact=Exact(
            (f"{_DRAWS}test_smallest_eigenvalue_inequality_of_dense_networks",
             f"{_DRAWS}test_smallest_eigenvalue_inequality_of_other_graphs"),
            "never exceeded by more than 1e-12 of the largest eigenvalue, for every eigenvalue",
        ),
    ),
    Claim(
        "C8", "fixed random gates generalize, but worse than ReLU and DL", "P1 6, P2 6",
        "FR-II is above 20 % with ten classes, twice what guessing gives, and below ReLU and below DL, each by more "
        "than 3 standard errors.",
        experiments=("regimes",), judge=regime_claims.random_gates,
    ),
    Claim(
        "C9", "FL from a trained network recovers it within 1 %: almost all that is learnt is in the gates",
        "P0 5, P1 6",
        "FL is at most 1 point below ReLU, best epochs. Where the ReLU network has fitted less than 90 % of its "
        "training labels, that does not decide.",
        experiments=("regimes",), judge=regime_claims.recovered,
    ),
    Claim(
        "C10", "FR-II and FR-DI do not differ", "P1 table 2, P2 6",
        "They are at most 0.5 points apart, as in the papers' own tables.",
        experiments=("regimes",), judge=regime_claims.both_random,
    ),
    Claim(
        "C11", "FL rises monotonically with the epoch that its gates come from, from below CNTK to above",
        "P1 fig. 2",
        "FL with the gates of the last stage is above FL with those of the first by more than 3 standard errors, so "
        "is each stage above the one before it, and the CNTK on the same data lies between.",
        experiments=("stages", "kernels"), judge=gate_claims.rising_stages,
    ),
    Claim(
        "C12", "ν_t falls while a network trains", "P0 fig. 3, P1 fig. 2",
        "The label energy after training is below that before by more than 3 standard errors, in logarithms, paired by "
        "seed.", "a figure without numbers",
        experiments=("label-energy",), judge=kernel_claims.falling_energy,
    ),
    Claim(
        "C13", "K^V and K^F are of one scale in DL", "P1 6",
        "At the worst epoch they are within a factor of 10, in trace and in Frobenius norm.", "no number",
        experiments=("kernel-parts",), judge=kernel_claims.one_scale,
    ),
    Claim(
        "C14", "gates learnt on random labels or random pixels are worse than random gates", "P0 5",
        "FL with such gates is below FR-II by more than 3 standard errors; it counts only where every network had "
        "fitted 90 % of its random data.",
        experiments=("regimes",), judge=regime_claims.wrong_gates,
    ),
    Claim(
        "C15", "with fixed random gates more depth first helps training, then hurts", "P0 4.2",
        "For each width and kind of inputs, gradient descent takes fewer steps to 10 % of its first error at the best "
        "depth than at the least, and fewer than at the largest, by more than 3 standard errors of the log ratio, "
        "paired by seed; no for the first half where the least depth is faster than all others by as much. The second "
        "half says yes or is open: deeper networks than the deepest could still be slower. A run that never gets to "
        "10 % (shown as > and its steps) counts with all its steps, and decides only where more steps would decide the "
        "same. An error is no smaller than whole steps make it. The best depth is chosen by the same runs, which "
        "favors yes a little.", "no number",
        experiments=("memorization",), judge=memory_claims.depth_helps_then_hurts,
    ),
    Claim(
        "C16", "normalized diagonal → 1, off-diagonal suppressed by Π μ_l", "P0 4.2",
        "At the largest width the mean diagonal, and off-diagonal entries over the product of limit overlaps, are "
        "within 10 % of 1; the diagonal comes nearer to 1 with width and off-diagonal entries fall with depth by more "
        "than 3 standard errors.", "1",
        experiments=("memorization",), judge=memory_claims.suppressed_entries,
    ),
    Claim(
        "C17", "K → K^(d) for a wide ReLU network", "P0 3, P1 A",
        "The distance falls from the smallest to the largest width by more than 3 standard errors, and is at most 10 % "
        "there.",
        exact=Exact(
            (f"{_WIDE}test_weights_as_torch_has_them_reach_both_limits_of_the_papers",
             f"{_WIDE}test_tangent_kernels_of_wide_networks_are_near_the_limit",
             "tests/kernels/limit/test_reference.py::test_the_general_reading_gives_the_stored_values"),
            "the mean of 200 networks of width 128 within 5 standard errors, which tell 10 % apart",
        ),
        experiments=("theorem",), judge=width_claims.limit_of_relu_networks,
    ),
    Claim(
        "C18", "soft-ReLU adds a feature part to the limit kernel", "P0 3",
        exact=Exact(
            (f"{_WIDE}test_soft_gates_reach_the_limit_and_its_parts",
             "tests/kernels/limit/test_activations.py::test_the_feature_part_is_the_integral_of_E2",
             "tests/kernels/limit/test_laws.py::test_parts_sum_to_the_whole_and_their_transposes_change_roles",
             "tests/kernels/limit/test_laws.py::test_hard_gates_have_no_feature_part"),
            "parts of 200 networks of width 128 within 5 standard errors; hard gates exactly 0",
        ),
    ),
    Claim(
        "C19", "path counts of FC, CNN, residual networks", "P2 3.1",
        exact=Exact(
            (f"{_PATHS}test_number_of_paths_of_a_dense_network", f"{_PATHS}test_number_of_paths_of_a_circular_cnn",
             f"{_PATHS}test_number_of_paths_of_a_residual_network"),
            "no deviation: whole numbers, up to 119 digits",
        ),
    ),
    Claim(
        "C20", "convolution with pooling makes the path kernel rotation invariant", "P2 4.3, P3 1",
        exact=Exact((f"{_KERNEL}test_circular_convolution_with_pooling_is_rotation_invariant",), _ROUNDING),
    ),
    Claim(
        "C21", "skips make it a sum of products over 2^b sub-networks", "P2 4.2",
        exact=Exact(
            (f"{_KERNEL}test_residual_kernel_is_the_sum_over_all_subsets_and_its_theorem",
             "tests/paths/test_gate_statistics.py::test_kernels_of_all_subnetworks_sum_to_the_path_kernel"),
            _ROUNDING,
        ),
    ),
    Claim(
        "C22", "K^V → β·H for CNN with pooling and for residual networks", "P2 5.1",
        "As for C4, without the depth.",
        exact=Exact(
            (f"{_KERNEL}test_theorem_for_convolution_with_pooling",
             f"{_KERNEL}test_residual_kernel_is_the_sum_over_all_subsets_and_its_theorem",
             f"{_DRAWS}test_distance_falls_with_the_root_of_the_width"),
            f"the expectation {_ROUNDING}; the power of the width -1/2 within 5 standard errors",
        ),
        experiments=("theorem",), judge=width_claims.expectation_of_other_networks,
    ),
    Claim(
        "C23",
        "the FC path kernel does not depend on the order of the gate layers (exact; a CNN's does, E20), and accuracy "
        "does not depend on the order of the gate layers, in all four regimes",
        "P2 6, P3 3, 4.1",
        "Every order is within 1 point (MNIST) or 3 points (CIFAR-10) of the mean over orders. It does not hold where "
        "one is not and the deviation over orders is more than 3 times that over seeds. All orders have been run with "
        "one seed, as in the papers. So the mean of the other orders must be as near to the layers' own order over "
        "several seeds too, not paired. The mean of both inputs stands beside the printed figure, and decides nothing.",
        exact=Exact((f"{_KERNEL}test_order_of_gate_layers_matters_for_convolution_only",), f"FC: {_ROUNDING}"),
        experiments=("gate-orders",), judge=order_claims.orders_of_gates,
    ),
    Claim(
        "C24", "nor on the value network's input being all ones", "P2 6, P3 4.1",
        "Ones and image are at most 1 point (MNIST) or 3 points (CIFAR-10) apart, paired by the order of the gates "
        "with one seed, and paired by the seed with the layers' own order.",
        "no number", experiments=("gate-orders",), judge=order_claims.inputs_of_ones,
    ),
    Claim(
        "C25", "reversed gates and one fixed random input reach the same accuracy", "P2 fig. 5, P3 fig. 3",
        "At most 3 points (CIFAR-10) below the ReLU network whose gates they are. The papers' networks fit about all "
        "of their training labels; where the ReLU network has fitted less than 90 %, that does not decide.",
        "both about 80 %",
        experiments=("hidden-outputs",), judge=gate_claims.reversed_gates,
    ),
    Claim(
        "C26", "learnt gates > CNTK > random gates", "P2 6",
        "On the same examples the FL network is above the CNTK, and that above the FR-II network, by more than 3 "
        "standard errors, networks after their last epoch; and FL above FR-II wherever both were trained. Fully "
        "connected networks beside their NTK, which is no CNTK, are shown and do not decide.",
        experiments=("kernels", "regimes"), judge=kernel_claims.learnt_and_random_gates,
    ),
    Claim(
        "C27", "DL is within 3 % of ReLU", "P2 6, P3 4.1", "DL is at most 3 points below ReLU, best epochs. "
        "Where the ReLU network has fitted less than 90 % of its training labels, that does not decide.",
        experiments=("regimes",), judge=regime_claims.decoupled,
    ),
    Claim(
        "C28", "the same for a ResNet", "P2 6",
        "FL is at most 1 point below ReLU, DL at most 3 points, FL above FR-II by more than 3 standard errors, and "
        "ones at most 3 points from the image.", "a figure without numbers",
        experiments=("residual",), judge=regime_claims.residual_network,
    ),
    Claim(
        "C29", "gate overlap of a random layer → (π-θ)/2π, and → 1/2 with depth (conjecture)", "P2 7",
        "At the largest width the overlap is off by no more than chance, 1 / (2 sqrt(w)); it falls with width by more "
        "than 3 standard errors; and of the first layer's distance from 1/2 at most half is left at the last layer of "
        "ReLU features.",
        exact=Exact(
            (f"{_WIDE}test_path_kernels_of_wide_networks_are_near_the_limit",
             "tests/papers/experiments/test_base_kernels.py::"
             "test_overlaps_in_the_limit_tend_to_a_half_and_their_product_falls_as_the_third_power"),
            "within 5 standard errors; in the limit the overlap at layer 4,096 is within 5e-4 of 1/2",
        ),
        experiments=("base-kernels",), judge=width_claims.overlap_of_random_layers,
    ),
    Claim(
        "C30", "gates survive tiling and rotation of the masks", "P3 1.1",
        "Behind rotated or repeated masks the accuracy is at most 3 points (CIFAR-10) below that behind masks as they "
        "are.", "no number", experiments=("tilings",), judge=gate_claims.changed_masks,
    ),
    Claim(
        "C31",
        "with gates fixed, upstream training on random labels costs little (M3 near M2; the papers' own figures say "
        "1.0 to 3.9 points, E22)",
        "P3 4.2", "M3 is at most 2 points below M2, at every level of noise.",
        experiments=("label-noise",), judge=noise_claims.fixed_gates,
    ),
    Claim(
        "C32",
        "with gates free it costs much, and the loss is in the gates (M4 = M5 within 0.5 %, below M2 at noise 0)",
        "P3 4.2",
        "M5 is within 0.5 points of M4 at every level of noise, and M4 below M2 without noise by more than 3 standard "
        "errors; so it is below M3 without noise: free gates cost more than fixed ones.",
        experiments=("label-noise",), judge=noise_claims.free_gates,
    ),
    Claim(
        "C33",
        "on noisy labels test accuracy rises, peaks and falls, and the fall is in the weights: M2 far above M1 at the "
        "end",
        "P3 4.2",
        "M1 falls from its best epoch to its last by more than 1 point, and M2 is above the last epoch of M1 by more "
        "than 5 points, both beyond 3 standard errors.",
        experiments=("label-noise",), judge=noise_claims.rise_and_fall,
    ),
    Claim(
        "C34", "the feature network may be entirely linear", "P3 5",
        "The deep linearly gated network is at most 3 points below ReLU. Where the ReLU network has fitted less than "
        "90 % of its training labels, that does not decide.", "no number",
        experiments=("linear-gating",), judge=gate_claims.linear_gates,
    ),
    Claim(
        "C35",
        "with dependent initialization (FR-DI, ReLU) K → K^(d), with independent K → d·σ^(2(d-1))·H: different limits",
        "P0 remark on assumption 1, P1 5",
        "At the largest width each is within 10 % of its own limit, and nearer to it than to the other by more than 3 "
        "standard errors.",
        experiments=("theorem",), judge=width_claims.two_limits,
    ),
    Claim(
        "C36", "in training, gates and K change by O(1/√w)", "P0 3, P2 5",
        "From width 128 on the fitted power of the width is at most -0.4, for the papers' variance of the first layer "
        "and for 2 / fan-in.",
        experiments=("theorem",), judge=width_claims.change_in_training,
    ),
    Claim(
        "C37", "a fixed-gate network generalizes as kernel regression with its NPK does", "P0 4.1, P1 5.1",
        "From the narrowest to the widest value network behind the same gates the distance of test outputs from the "
        "kernel's falls by more than 3 standard errors, and the widest is within 1 point of the kernel's accuracy. "
        "Networks as they are, not widened, beside kernel regression with their gates are shown and do not decide.",
        "no number", experiments=("kernels",), judge=kernel_claims.networks_and_their_kernel,
    ),
    Claim(
        "C38", "near-duplicate inputs make H ill-conditioned", "P1 remark after 3.3",
        exact=Exact(
            ("tests/kernels/test_diagnostics.py::test_near_duplicate_inputs_make_the_path_kernel_ill_conditioned",),
            "the condition number grows as distance^-2 within 5 %, beyond 1e9 at a distance of 1e-6",
        ),
    ),
)  # fmt: skip
