"""The hand-written digits that come with scikit-learn: 1797 images of 8×8 grey pixels."""

from dataclasses import replace

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from otprune.training.data.images import Dataset, Images

TEST_SHARE = 0.25
DARKEST = 16
PREPARATION = f"pixels of scikit-learn's, from 0 to {DARKEST}, multiplied by 255/{DARKEST}, rounded and divided by 255"


def load() -> Dataset:
    """All digits, the same quarter of each class for testing every time; the values 0 to 16 become 0 to 255.

    >>> data = load()
    >>> len(data.train), tuple(data.test.pixels.shape), int(data.train.pixels.max())
    (1347, (450, 1, 8, 8), 255)
    """
    bunch = load_digits()
    pixels = np.rint(bunch.images[:, None] * (255 / DARKEST)).astype(np.uint8)
    every = Images(torch.from_numpy(pixels), torch.from_numpy(bunch.target.astype(np.int64)))
    train, test = train_test_split(np.arange(len(every)), test_size=TEST_SHARE, stratify=bunch.target, random_state=0)
    data = Dataset.of(every[torch.from_numpy(train)], every[torch.from_numpy(test)], tuple("0123456789"))
    return replace(data, preparation=PREPARATION)
