"""The real files, where they lie beside the checkout or in $NEURALPATH_DATA."""

import os
from pathlib import Path

import pytest
import torch

from neuralpath import data

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data"
ROOT = BESIDE if BESIDE.is_dir() else Path(os.environ.get("NEURALPATH_DATA", "/nonexistent"))


def load_real(name: str) -> data.Dataset:
    if not ROOT.is_dir():
        pytest.skip("no real data: neither ../shared/data beside the checkout nor $NEURALPATH_DATA is a folder")
    try:
        data.find(name, ROOT)
    except data.DataError as error:
        pytest.skip(f"no real {name}: {error}")
    return data.load(name, data_dir=ROOT)


@pytest.mark.parametrize(
    ("name", "counts"),
    [("mnist", [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]), ("fashion-mnist", [6000] * 10)],
)
def test_idx_sets(name: str, counts: list[int]) -> None:
    dataset = load_real(name)
    assert dataset.train.images.shape == (60_000, 1, 28, 28)
    assert dataset.test.images.shape == (10_000, 1, 28, 28)
    assert torch.bincount(dataset.train.labels).tolist() == counts


def test_cifar10() -> None:
    dataset = load_real("cifar10")
    assert dataset.train.images.shape == (50_000, 3, 32, 32)
    assert dataset.test.images.shape == (10_000, 3, 32, 32)
    assert torch.bincount(dataset.train.labels).tolist() == [5000] * 10
    assert torch.bincount(dataset.test.labels).tolist() == [1000] * 10
    means = torch.stack([channel.double().mean() for channel in dataset.train.images.unbind(1)])
    published = torch.tensor([0.49139968, 0.48215841, 0.44653091], dtype=torch.float64)
    # Published to eight places, and each float32 pixel is off by at most half a unit in the last place.
    assert float((means - published).abs().max()) <= 1e-8 + torch.finfo(torch.float32).eps / 2


def test_cifar100() -> None:
    dataset = load_real("cifar100")
    assert torch.bincount(dataset.train.labels).tolist() == [500] * 100
    assert torch.bincount(dataset.test.labels).tolist() == [100] * 100
