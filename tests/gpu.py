"""The GPU as a parameter of a test, which is skipped where there is none."""

import pytest
import torch

# Compiling warns of things that are not ours to mend.
GPU = pytest.param(
    "cuda",
    marks=[
        pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU, where the step is a compiled graph"),
        pytest.mark.filterwarnings("default"),
    ],
)
