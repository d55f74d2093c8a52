"""Convolutional network with second-order pooling."""

import copy
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from spdnet._checks import as_array
from spdnet._inputs import seed_of
from spdnet.baselines.estimator import Baseline, IntArray, ScoresMixin, choice, count, positive
from spdnet.models import O2PNet
from spdnet.training.device import resolve_device
from spdnet.training.network import seeded


@dataclass(eq=False, repr=False)
class DeepO2PClassifier(ScoresMixin, Baseline):
    """DeepO2P on images ``(N, height, width)`` or ``(N, channels, height, width)``.

    Trains :class:`spdnet.models.O2PNet`; the scores are its logits.

    Parameters
    ----------
    pool : {"log", "mean"}
        Second-order pooling, or first-order pooling for comparison.
    epochs, batch_size, lr : int, int and float
        Settings of Adam; the learning rate is annealed to zero along a half cosine.
    random_state : int, RandomState or None
        Seed of the weights and of the order of the images.
    device : str
        ``"auto"`` selects a CUDA device if there is one. Fitted attributes are on the CPU.

    References
    ----------
    C. Ionescu, O. Vantzos, C. Sminchisescu, "Matrix backpropagation for deep networks with
    structured layers", ICCV 2015.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from spdnet.baselines import DeepO2PClassifier
    >>> digits = load_digits()
    >>> X, y = digits.images, digits.target
    >>> model = DeepO2PClassifier(epochs=5).fit(X[:600], y[:600])
    >>> bool(model.score(X[600:1000], y[600:1000]) > 0.9)
    True
    """

    _: KW_ONLY
    pool: str = choice("log", choices=("log", "mean"))
    epochs: int = count(30)
    batch_size: int = count(50)
    lr: float = positive(0.003)
    random_state: Any = 0
    device: str = "auto"

    def _fit(self, X: Tensor, codes: IntArray) -> None:
        self.n_features_in_ = X.shape[1]  # channels
        center = X.mean((0, 2, 3), keepdim=True)
        scale = X.std((0, 2, 3), keepdim=True).clamp(min=1e-12)
        seed = seed_of(self.random_state)
        with seeded(seed):
            model = O2PNet(len(self.classes_), in_channels=X.shape[1], pool=self.pool)
        model.to(X.device)
        self._train(model, (X - center) / scale, torch.as_tensor(codes, device=X.device), seed)
        self.center_, self.scale_, self.model_ = center.cpu(), scale.cpu(), model.cpu()

    def _train(self, model: O2PNet, X: Tensor, y: Tensor, seed: int) -> None:
        optimizer = torch.optim.Adam(model.parameters(), lr=self.lr)
        size = min(self.batch_size, len(X))
        steps = self.epochs * (len(X) // size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        generator = torch.Generator().manual_seed(seed)
        model.train()
        for _ in range(self.epochs):
            for index in torch.randperm(len(X), generator=generator).split(size):
                if len(index) == size:  # drop an incomplete batch, because of batch normalization
                    optimizer.zero_grad()
                    cross_entropy(model(X[index]), y[index]).backward()
                    optimizer.step()
                    schedule.step()
        model.eval()

    @torch.no_grad()
    def _scores(self, X: Tensor) -> NDArray[Any]:
        X = (X - self.center_.to(X.device)) / self.scale_.to(X.device)
        model = self.model_ if X.device.type == "cpu" else copy.deepcopy(self.model_).to(X.device)
        return torch.cat([model(part) for part in X.split(256)]).cpu().numpy()

    def _validate(self, X: ArrayLike, n: int | None = None) -> Tensor:
        X = as_array("DeepO2PClassifier", X.detach().cpu() if isinstance(X, Tensor) else X)
        if X.ndim == 3:
            X = X[:, None]
        if X.ndim != 4 or len(X) == 0 or X.dtype.kind not in "iuf":
            raise ValueError(
                "DeepO2PClassifier: expected images (N, height, width) or (N, channels, height, "
                f"width) of numbers, got {X.dtype} {X.shape}"
            )
        if not numpy.isfinite(X).all():
            raise ValueError("DeepO2PClassifier: expected finite images, got NaN or infinity")
        if n is not None and X.shape[1] != n:
            raise ValueError(
                f"DeepO2PClassifier: expected images of {n} channels as in fit, got {X.shape[1]}"
            )
        return torch.from_numpy(X.astype(numpy.float32)).to(resolve_device(self.device))
