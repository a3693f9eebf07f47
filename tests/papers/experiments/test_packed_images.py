"""Images in records: eight bits, each on its own scale."""

import json

import numpy as np

from neuralpath.papers.experiments.hidden_outputs import pack_images, unpack_images

IMAGES = np.array([[[0.0, 1.0, 4.0]], [[-3.0, -1.0, 1.0]], [[7.0, 7.0, 7.0]]])


def test_each_image_is_scaled_from_its_least_to_its_largest():
    packed = json.loads(json.dumps(pack_images(IMAGES)))
    found = np.array(unpack_images(packed))
    assert found.shape == (3, 1, 3)
    assert np.abs(found[0, 0] - [0, 0.25, 1]).max() <= 0.5 / 255
    assert np.abs(found[1, 0] - [0, 0.5, 1]).max() <= 0.5 / 255
    assert (found[2] == 0).all()


def test_signed_images_have_zero_in_the_middle():
    found = np.array(unpack_images(pack_images(IMAGES - [[[0.0]], [[0.0]], [[7.0]]], signed=True)))
    assert np.abs(found[0, 0] - [0.5, 0.625, 1]).max() <= 0.5 / 255 + 1e-12
    assert np.abs(found[1, 0] - [0, 1 / 3, 2 / 3]).max() <= 0.5 / 255 + 1e-12
    assert np.abs(found[2] - 0.5).max() <= 0.5 / 255 + 1e-12
