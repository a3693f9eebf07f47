"""The digits that come with scikit-learn."""

import torch

from neuralpath.data._records import Dataset, Split
from neuralpath.data._sources import EMBEDDED

_LARGEST_VALUE = 16  # the images count ink in blocks of 4 x 4 pixels
_TEST_EVERY = 5


def load_digits() -> Dataset:
    """Digits of the UCI repository's test set as in scikit-learn: 8 x 8 pixels, divided by 16.

    The set comes unsplit. Here every fifth example, starting with the first, is a test example:
    1437 for training, 360 for testing.
    """
    # Here and not above: scikit-learn takes a second to import, and no other data set needs it.
    from sklearn.datasets import load_digits as load_from_sklearn

    values, numbers = load_from_sklearn(return_X_y=True)
    images = torch.from_numpy(values).to(torch.float32).reshape(-1, 1, 8, 8).div_(_LARGEST_VALUE)
    labels = torch.from_numpy(numbers).to(torch.int64)
    is_test = torch.arange(len(labels)) % _TEST_EVERY == 0
    return Dataset(
        name=EMBEDDED,
        train=Split(images[~is_test], labels[~is_test]),
        test=Split(images[is_test], labels[is_test]),
        class_names=tuple("0123456789"),
    )
