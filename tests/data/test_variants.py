import math

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from neuralpath.data import Split, balanced_subset, binary_task, label_noise, random_labels, random_pixels, splits

seeds = st.integers(0, 2**32 - 1)
label_lists = st.lists(st.integers(0, 4), max_size=40)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numbered_split(labels: list[int]) -> Split:
    """Split whose images are one pixel with the example's number, so that examples can be followed."""
    numbers = torch.arange(len(labels), dtype=torch.float32).reshape(-1, 1, 1, 1)
    return Split(numbers, torch.tensor(labels, dtype=torch.int64))


def assert_uniform(draws: Tensor, n_values: int) -> None:
    counts = torch.bincount(draws, minlength=n_values)
    expected = len(draws) / n_values
    standard_error = math.sqrt(expected * (1 - 1 / n_values))
    assert len(counts) == n_values
    assert float((counts - expected).abs().max()) <= 5 * standard_error


def test_uniformity_check_can_fail() -> None:
    draws = torch.arange(50_000) % 10
    assert_uniform(draws, 10)
    draws[:5_000:10] = 1  # now 0 is a tenth too rare
    with pytest.raises(AssertionError):
        assert_uniform(draws, 10)


@given(label_lists)
def test_binary_task(labels: list[int]) -> None:
    split = numbered_split([*labels, 4, 2])
    task = binary_task(split, negative=4, positive=2)
    kept = [(number, label) for number, label in enumerate([*labels, 4, 2]) if label in (2, 4)]
    assert task.images.flatten().tolist() == [number for number, _ in kept]
    assert task.labels.tolist() == [1.0 if label == 2 else -1.0 for _, label in kept]
    assert task.labels.dtype == torch.float32


def test_binary_task_needs_two_classes_with_examples() -> None:
    split = numbered_split([0, 1])
    with pytest.raises(ValueError, match="must be two classes, got 1 for both"):
        binary_task(split, 1, 1)
    with pytest.raises(ValueError, match="`positive` must be a class of the split; no example has the label 7"):
        binary_task(split, 0, 7)


@given(label_lists, st.floats(0, 1), seeds)
def test_label_noise_changes_at_most_its_share(labels: list[int], fraction: float, seed: int) -> None:
    before = torch.tensor(labels, dtype=torch.int64)
    kept = before.clone()
    noisy = label_noise(before, fraction, 5, seeded(seed))
    assert torch.equal(before, kept)
    assert int((noisy != before).sum()) <= round(fraction * len(labels))
    assert ((noisy >= 0) & (noisy < 5)).all()
    assert torch.equal(noisy, label_noise(before, fraction, 5, seeded(seed)))


def test_label_noise_redraws_exactly_its_share_uniformly() -> None:
    labels = torch.full((50_000,), 7)
    noisy = label_noise(labels, 0.25, 10, seeded(0))
    # Of the 12 500 redrawn labels a tenth comes out true again; five standard errors of that count are 167.
    assert abs(int((noisy != labels).sum()) - 11_250) <= 167
    assert_uniform(label_noise(labels, 1, 10, seeded(1)), 10)
    assert_uniform((noisy != labels).nonzero()[:, 0] // 5_000, 10)  # all over the set, not only at its start
    assert torch.equal(label_noise(labels, 0, 10, seeded(0)), labels)


@pytest.mark.parametrize("fraction", [-0.1, 1.1, math.nan])
def test_label_noise_refuses_a_wrong_fraction(fraction: float) -> None:
    with pytest.raises(ValueError, match="`fraction` must lie between 0 and 1, got "):
        label_noise(torch.tensor([0]), fraction, 2, seeded(0))


def test_labels_beyond_the_classes_are_refused() -> None:
    for make in (lambda y, n: label_noise(y, 0.5, n, seeded(0)), lambda y, n: random_labels(y, n, seeded(0))):
        with pytest.raises(ValueError, match=r"`labels` must lie between 0 and 2,.* got 1 to 3"):
            make(torch.tensor([1, 3]), 3)
        with pytest.raises(ValueError, match="`n_classes` must be at least 1, got 0"):
            make(torch.tensor([], dtype=torch.int64), 0)


def test_random_labels_are_uniform_and_follow_the_generator() -> None:
    labels = torch.zeros(50_000, dtype=torch.int64)
    drawn = random_labels(labels, 10, seeded(3))
    assert_uniform(drawn, 10)
    assert torch.equal(drawn, random_labels(labels, 10, seeded(3)))
    assert not torch.equal(drawn, random_labels(labels, 10, seeded(4)))
    assert not labels.any()


@given(st.integers(0, 4), st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), seeds)
def test_random_pixels_moves_whole_pixels(batch: int, channels: int, height: int, width: int, seed: int) -> None:
    n_pixels = height * width
    numbers = torch.arange(batch * n_pixels).reshape(batch, 1, height, width)
    images = numbers + 1000 * torch.arange(channels).reshape(1, -1, 1, 1)
    shuffled = random_pixels(images, seeded(seed))
    assert torch.equal(shuffled.flatten(2).sort(dim=2).values, images.flatten(2))
    assert torch.equal(shuffled - shuffled[:, :1], images - images[:, :1])
    assert torch.equal(shuffled, random_pixels(images, seeded(seed)))


def test_random_pixels_has_a_uniform_permutation_for_each_image() -> None:
    images = torch.arange(12).reshape(1, 1, 3, 4).expand(10_000, 1, 3, 4)
    shuffled = random_pixels(images, seeded(0)).flatten(1)
    assert_uniform(shuffled[:, 0], 12)
    assert_uniform(shuffled[:, 11], 12)
    assert len(shuffled.unique(dim=0)) > 9_990  # two of 10 000 share one of 12! with probability 0.1


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), seeds)
def test_balanced_subset(labels: list[int], seed: int) -> None:
    split = numbered_split(labels)
    n_per_class = min(labels.count(label) for label in set(labels))
    subset = balanced_subset(split, n_per_class, seeded(seed))
    numbers = [int(number) for number in subset.images.flatten()]
    assert numbers == sorted(set(numbers))
    assert subset.labels.tolist() == [labels[number] for number in numbers]
    assert all(subset.labels.tolist().count(label) == n_per_class for label in set(labels))
    assert torch.equal(subset.images, balanced_subset(split, n_per_class, seeded(seed)).images)


def test_balanced_subset_chooses_uniformly_and_works_on_signs() -> None:
    task = binary_task(numbered_split([0, 1] * 5), 0, 1)
    generator = seeded(0)
    drawn = torch.cat([balanced_subset(task, 1, generator).images.flatten() for _ in range(4_000)])
    assert_uniform(drawn.long(), 10)


def test_balanced_subset_refuses_what_cannot_be() -> None:
    split = numbered_split([0, 0, 1])
    with pytest.raises(ValueError, match=r"must be at most 1, .* with the label 1; got 2"):
        balanced_subset(split, 2, seeded(0))
    with pytest.raises(ValueError, match="`n_per_class` must be at least 1, got 0"):
        balanced_subset(split, 0, seeded(0))


def test_global_randomness_is_neither_used_nor_accepted() -> None:
    state = torch.get_rng_state()
    split = numbered_split([0, 0, 1, 1])
    label_noise(split.labels, 0.5, 2, seeded(0))
    random_labels(split.labels, 2, seeded(0))
    random_pixels(split.images, seeded(0))
    balanced_subset(split, 1, seeded(0))
    assert torch.equal(torch.get_rng_state(), state)
    # Not through a variant: the type checks that tests switch on would speak first.
    with pytest.raises(TypeError, match=r"`generator` must be a torch.Generator, got NoneType; make one with"):
        splits._require_generator(None)
