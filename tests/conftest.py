import numpy as np
import pytest
import torch
from hypothesis import settings


def pytest_configure():
    torch.set_num_threads(1)  # small matrices: the workers of pytest-xdist are the parallelism


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
