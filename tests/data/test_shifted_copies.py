"""Augmented copies: shifts against a loop, and the same examples whatever the batches are."""

import pytest
import torch

from neuralpath.data import Split
from neuralpath.data.splits import shifted, shifted_copies


def _split(n=7, channels=2):
    generator = torch.Generator().manual_seed(0)
    return Split(torch.rand(n, channels, 5, 4, generator=generator), torch.arange(n))


def _shifted_by_loops(image, down, right):
    moved = torch.zeros_like(image)
    _, height, width = image.shape
    for y in range(height):
        for x in range(width):
            if 0 <= y - down < height and 0 <= x - right < width:
                moved[:, y, x] = image[:, y - down, x - right]
    return moved


def test_shifts_agree_with_loops():
    images = _split(9).images
    shifts = torch.tensor([[0, 0], [1, 0], [0, -1], [2, 3], [-2, 1], [-1, -3], [4, 0], [5, 1], [-7, 9]])
    expected = [_shifted_by_loops(image, *shift) for image, shift in zip(images, shifts.tolist(), strict=True)]
    assert torch.equal(shifted(images, shifts), torch.stack(expected))


def _all(split, n, **settings):
    batches = list(shifted_copies(split, n, **settings))
    return torch.cat([images for images, _ in batches]), torch.cat([labels for _, labels in batches])


def test_the_first_pass_is_the_data_set_itself():
    split = _split()
    images, labels = _all(split, 7, batch_size=3)
    assert torch.equal(images, split.images)
    assert torch.equal(labels, split.labels)


def test_copies_are_shifted_images_with_their_labels():
    split = _split()
    images, labels = _all(split, 30, max_shift=1)
    assert len(images) == len(labels) == 30
    for number in range(1, 4):
        assert sorted(labels[7 * number : 7 * (number + 1)].tolist()) == list(range(7))
    seen = set()
    for image, label in zip(images[7:], labels[7:].tolist(), strict=True):
        found = [
            (down, right)
            for down in (-1, 0, 1)
            for right in (-1, 0, 1)
            if torch.equal(image, _shifted_by_loops(split.images[label], down, right))
        ]
        assert len(found) == 1
        seen.update(found)
    assert len(seen) > 5  # of nine, in 23 draws


def test_batches_do_not_change_the_examples_and_seeds_do():
    split = _split()
    first, again, other = (_all(split, 40, batch_size=b, seed=s) for b, s in ((2, 3), (100, 3), (100, 4)))
    assert torch.equal(first[0], again[0])
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize("wrong", [{"n_examples": 0}, {"max_shift": -1}, {"batch_size": 0}, {"seed": -1}])
def test_wrong_numbers_are_refused_at_once(wrong):
    settings = {"n_examples": 3, **wrong}
    with pytest.raises(ValueError, match=f"`{next(iter(wrong))}` must be at least"):
        shifted_copies(_split(), **settings)


def test_an_empty_split_is_refused():
    with pytest.raises(ValueError, match="no images"):
        shifted_copies(Split(torch.zeros(0, 1, 2, 2), torch.zeros(0, dtype=torch.int64)), 3)
