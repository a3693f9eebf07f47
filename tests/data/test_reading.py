import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as st_numpy

from neuralpath.data import DataError
from neuralpath.data._reading import parse_idx

arrays = st_numpy.arrays(np.uint8, st_numpy.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=5))


def idx_bytes(array: np.ndarray) -> bytes:
    header = [0x0800 + array.ndim, *array.shape]
    return np.array(header, ">u4").tobytes() + array.tobytes()


@given(arrays)
def test_round_trip(array: np.ndarray) -> None:
    parsed = parse_idx("file", idx_bytes(array), array.shape)
    assert parsed.dtype == np.uint8
    assert parsed.shape == array.shape
    np.testing.assert_array_equal(parsed, array)


@given(arrays, st.data())
def test_any_cut_is_refused_in_one_line(array: np.ndarray, data: st.DataObject) -> None:
    contents = idx_bytes(array)
    n_kept = data.draw(st.integers(0, len(contents) - 1))
    with pytest.raises(DataError, match=r"^[^\n]*expected[^\n]*$"):
        parse_idx("file", contents[:n_kept], array.shape)


@given(arrays, st.binary(min_size=1, max_size=8))
def test_any_addition_is_refused(array: np.ndarray, more: bytes) -> None:
    with pytest.raises(DataError, match=r"file has more than \d+ bytes"):
        parse_idx("file", idx_bytes(array) + more, array.shape)


@given(st.binary(max_size=64))
def test_arbitrary_bytes_give_a_data_error_or_the_expected_shape(contents: bytes) -> None:
    if contents[:12] == idx_bytes(np.zeros((2, 3), np.uint8))[:12] and len(contents) == 18:
        assert parse_idx("file", contents, (2, 3)).shape == (2, 3)
    else:
        with pytest.raises(DataError, match=r"^[^\n]*expected[^\n]*$"):
            parse_idx("file", contents, (2, 3))


def test_magic_numbers_are_those_of_mnist_and_a_wrong_one_is_named() -> None:
    labels, images = idx_bytes(np.zeros(3, np.uint8)), idx_bytes(np.zeros((1, 1, 3), np.uint8))
    with pytest.raises(DataError, match=r"expected the magic number 2051, found 2049\."):
        parse_idx("file", labels, (1, 1, 3))
    with pytest.raises(DataError, match=r"expected the magic number 2049, found 2051\."):
        parse_idx("file", images, (3,))


def test_wrong_count_is_named() -> None:
    with pytest.raises(DataError, match=r"file .*3x2x2.*4x2x2"):
        parse_idx("file", idx_bytes(np.zeros((3, 2, 2), np.uint8)), (4, 2, 2))
