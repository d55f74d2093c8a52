import os

import numpy as np
import pytest
import torch
from hypothesis import settings


def pytest_configure():
    # small matrices: the workers of pytest-xdist are the parallelism, here and in child processes
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(autouse=True)
def _no_data_of_the_user(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SPDNET_DATA", str(tmp_path_factory.getbasetemp() / "no-data"))


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
