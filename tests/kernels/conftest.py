"""Kernels run on the GPU where there is one and under Triton's interpreter elsewhere; the same tests serve both."""

import os

import pytest
import torch

# Read when a kernel is decorated, so before the first import of dspark_kernels.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
