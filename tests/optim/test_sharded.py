"""Parameters sharded among processes started by torchrun."""

import os
import subprocess
import sys
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn

from spdnet import SPDNet
from spdnet.models import MultiBranchSPDNet
from spdnet.nn import BiMap
from spdnet.optim import RiemannianAdam, RiemannianSGD
from spdnet.testing import assert_on_stiefel
from tests.cases import random_spd

SETTINGS = [
    (RiemannianSGD, {}),
    (RiemannianSGD, {"momentum": 0.9}),
    (RiemannianAdam, {"amsgrad": True, "weight_decay": 0.1}),
]
MODELS = [
    lambda: SPDNet((7, 5, 3), 2, bias=True, dtype=torch.float64),
    lambda: MultiBranchSPDNet((7, 5, 3), 2, n_branches=3, dtype=torch.float64),
]


@pytest.fixture
def one_process():
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1, timeout=timedelta(0, 60))
    yield
    dist.destroy_process_group()


def train(model, optimizer, X, y, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X), y).backward()
        optimizer.step()


def compare(make, optimizer, settings, rank=0, n_processes=1):
    """Train a sharded model and an ordinary one with the whole batch."""
    from torch.distributed.fsdp import fully_shard

    X, y = random_spd(8, 7), torch.arange(8) % 2
    part = slice(rank * 8 // n_processes, (rank + 1) * 8 // n_processes)
    torch.manual_seed(0)
    whole = make()
    torch.manual_seed(0)
    sharded = fully_shard(make(), mesh=dist.init_device_mesh("cpu", (n_processes,)))
    states = []
    for _ in range(2):  # the second round with loaded states
        steps = [optimizer(m.parameters(), lr=0.05, **settings) for m in (whole, sharded)]
        for step, state in zip(steps, states, strict=False):
            step.load_state_dict(state)
        train(whole, steps[0], X, y, 4)
        train(sharded, steps[1], X[part], y[part], 4)
        states = [step.state_dict() for step in steps]
        sharded.load_state_dict(sharded.state_dict(), assign=True)
        sharded.to(torch.float64)
    for p, q in zip(whole.parameters(), sharded.parameters(), strict=True):
        torch.testing.assert_close(q.full_tensor(), p.data, atol=1e-12, rtol=0)
    for module in sharded.modules():
        if isinstance(module, BiMap):
            assert_on_stiefel(module.weight.full_tensor())


@pytest.mark.parametrize(("optimizer", "settings"), SETTINGS)
@pytest.mark.parametrize("make", MODELS)
def test_fsdp_weights_stay_on_manifold(one_process, make, optimizer, settings):
    compare(make, optimizer, settings)


def refuse_flattened(use_orig_params):
    from torch.distributed.fsdp import FullyShardedDataParallel

    model = FullyShardedDataParallel(
        MODELS[0](), use_orig_params=use_orig_params, device_id=torch.device("cpu")
    )
    with pytest.raises(TypeError, match=r"use torch.distributed.fsdp.fully_shard"):
        RiemannianSGD(model.parameters())


@pytest.mark.filterwarnings("ignore:FSDP is switching:UserWarning")  # one process has no shards
def test_flattened_fsdp_weights_are_refused(one_process):
    refuse_flattened(use_orig_params=False)


@pytest.mark.slow
def test_fsdp_with_two_processes():
    start = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    found = subprocess.run(
        [sys.executable, *start, "-m", "tests.optim.test_sharded"],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("equal") == 2


if __name__ == "__main__":
    dist.init_process_group("gloo")
    for make in MODELS:
        for optimizer, settings in SETTINGS:
            compare(make, optimizer, settings, dist.get_rank(), dist.get_world_size())
    for use_orig_params in (True, False):
        refuse_flattened(use_orig_params)
    print("equal")
    dist.destroy_process_group()
