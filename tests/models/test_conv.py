import copy
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from spdnet.linalg import logm, vech
from spdnet.models import ConvSPDNet, O2PNet, SmallConvNet
from spdnet.optim import RiemannianSGD
from spdnet.testing import assert_on_stiefel

MODELS = {
    "O2PNet": lambda: O2PNet(3),
    "first order": lambda: O2PNet(3, pool="mean"),
    "ConvSPDNet": lambda: ConvSPDNet(3, dims=(16, 8)),
    "Gaussian": lambda: ConvSPDNet(3, kind="gaussian", eps=1e-3),
    "own backbone": lambda: O2PNet(3, nn.Conv2d(1, 6, 3)),
    "backbone without a name": lambda: ConvSPDNet(3, nn.Sequential(nn.Conv2d(1, 6, 3)), channels=6),
}
every_model = pytest.mark.parametrize("name", MODELS)
images = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def make(name):
    torch.manual_seed(0)
    return MODELS[name]()


@every_model
def test_trains_end_to_end(name):
    model = make(name)
    y = torch.arange(6) % 3
    optimizer = RiemannianSGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), y)
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    for bimap in getattr(getattr(model, "spdnet", None), "bimaps", []):
        assert_on_stiefel(bimap.weight, tol=1e-5)


@every_model
def test_copies_and_compiles(name):
    model = make(name).eval()
    logits = model(images)
    assert logits.shape == (6, 3)
    twin = copy.deepcopy(model)
    twin.load_state_dict(model.state_dict())
    torch.testing.assert_close(twin(images), logits)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(images), logits)


def test_o2p_by_its_formula():
    model = make("O2PNet").double().eval()
    F = model.backbone(images.double()).flatten(2)
    C = F @ F.mT / F.shape[-1] + 1e-3 * torch.eye(F.shape[1])
    torch.testing.assert_close(model(images.double()), model.classifier(vech(logm(C))))


def test_large_images_are_halved_between_convolutions():
    assert SmallConvNet(3, (4, 5, 6))(torch.randn(1, 3, 32, 32)).shape == (1, 6, 8, 8)


def test_constant_features_have_a_logarithm():
    flat = torch.zeros(2, 1, 8, 8)
    model = make("ConvSPDNet")
    outputs = model(flat)
    outputs.square().sum().backward()
    assert outputs.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    one_place = ConvSPDNet(3, nn.Conv2d(1, 8, 1), channels=8)(torch.randn(2, 1, 1, 1))
    assert one_place.isfinite().all()


def test_a_backbone_of_unknown_channels_is_refused():
    for model in (O2PNet, ConvSPDNet):
        with pytest.raises(ValueError, match="channels="):
            model(3, nn.Sequential(nn.Conv2d(1, 6, 3)))
    with pytest.raises(ValueError, match="pool"):
        O2PNet(3, pool="max")
    with pytest.raises(ValueError, match="n_classes"):
        O2PNet(0)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["O2PNet", "ConvSPDNet"])
def test_accuracy_on_the_digits(name):
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    try:
        from how_good_are_second_order_convnets import accuracy
    finally:
        sys.path.pop(0)
    score, _ = accuracy(name, seed=0)
    assert score >= 0.98
