import math
import os

import numpy as np
import pytest
import torch
from hypothesis import settings


def pytest_configure():
    # the matrices are small, and pytest-xdist runs one worker per core
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"


@pytest.fixture(autouse=True)
def _no_user_data(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SPDNET_DATA", str(tmp_path_factory.getbasetemp() / "no-data"))


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _no_drawing(request, monkeypatch):
    """Replace report figures by empty ones, since drawing dominates the time of a short run."""
    if {"report", "test_plots.py", "test_reproduce.py"} & set(request.path.parts):
        return
    from matplotlib.figure import Figure

    draw = Figure.savefig

    def savefig(figure, file, **options):
        if options.get("format") != "svg":
            return draw(figure, file, **options)
        return file.write('<svg width="100pt" height="100pt"></svg>')

    monkeypatch.setattr(Figure, "savefig", savefig)


@pytest.fixture(autouse=True)
def _frequent_checkpoints(monkeypatch):
    """Write a checkpoint after each epoch, also if the machine is busy and writing takes long."""
    monkeypatch.setattr("spdnet.runs.checkpoints._QUICK", math.inf)


settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
