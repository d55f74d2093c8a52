"""A ConvNet with second-order pooling, with the conventions of scikit-learn."""

import copy
from typing import Any

import numpy
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor
from torch.nn.functional import cross_entropy

from spdnet._checks import as_array, require_choice, require_count, require_number
from spdnet._inputs import encode_labels, seed_of
from spdnet.baselines.estimator import one_column_for_two
from spdnet.models import O2PNet
from spdnet.training.device import resolve_device
from spdnet.training.seed import seeded


class DeepO2PClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """DeepO2P on images: see :class:`spdnet.models.O2PNet`.

    Parameters
    ----------
    pool : {"log", "mean"}
        Second-order pooling, or first-order pooling to compare with.
    epochs, batch_size : int
    lr : float
        Learning rate of Adam at the start; it falls to zero along half a cosine.
    random_state : int, RandomState or None
        Of the weights and the order of the images.
    device : str
        ``"auto"`` takes a CUDA device where there is one. What is learnt is kept on the CPU.

    Attributes
    ----------
    classes_ : array, shape (n_classes,)
    n_features_in_ : int
        Channels of the images.
    model_ : O2PNet

    References
    ----------
    C. Ionescu, O. Vantzos, C. Sminchisescu, "Matrix Backpropagation for Deep Networks with
    Structured Layers", ICCV 2015.

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

    def __init__(
        self,
        *,
        pool: str = "log",
        epochs: int = 30,
        batch_size: int = 50,
        lr: float = 0.003,
        random_state: Any = 0,
        device: str = "auto",
    ) -> None:
        self.pool = pool
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.random_state = random_state
        self.device = device

    def fit(self, X: ArrayLike, y: ArrayLike) -> "DeepO2PClassifier":
        """Train on images ``(N, height, width)`` or ``(N, channels, height, width)``."""
        require_choice("DeepO2PClassifier", "pool", self.pool, ("log", "mean"))
        require_count("DeepO2PClassifier", "epochs", self.epochs)
        require_count("DeepO2PClassifier", "batch_size", self.batch_size)
        require_number("DeepO2PClassifier", "lr", self.lr, above=0)
        images = self._images(X)
        classes, codes = encode_labels("DeepO2PClassifier", y, len(images))
        center = images.mean((0, 2, 3), keepdim=True)
        scale = images.std((0, 2, 3), keepdim=True).clamp(min=1e-12)
        seed = seed_of(self.random_state)
        with seeded(seed):
            model = O2PNet(len(classes), in_channels=images.shape[1], pool=self.pool)
        model.to(images.device)
        target = torch.as_tensor(codes, device=images.device)
        self._train(model, (images - center) / scale, target, seed)
        self.classes_, self.n_features_in_ = classes, images.shape[1]
        self.center_, self.scale_, self.model_ = center.cpu(), scale.cpu(), model.cpu()
        return self

    def _train(self, model: O2PNet, X: Tensor, y: Tensor, seed: int) -> None:
        optimizer = torch.optim.Adam(model.parameters(), lr=self.lr)
        size = min(self.batch_size, len(X))
        steps = self.epochs * (len(X) // size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        generator = torch.Generator().manual_seed(seed)
        model.train()
        for _ in range(self.epochs):
            for index in torch.randperm(len(X), generator=generator).split(size):
                if len(index) == size:  # batch normalisation wants whole batches
                    optimizer.zero_grad()
                    cross_entropy(model(X[index]), y[index]).backward()
                    optimizer.step()
                    schedule.step()
        model.eval()

    @torch.no_grad()
    def decision_function(self, X: ArrayLike) -> NDArray[Any]:
        """Logits ``(N, n_classes)``; for two classes the difference ``(N,)``."""
        return one_column_for_two(self._logits(X))

    @torch.no_grad()
    def _logits(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        images = self._images(X)
        if images.shape[1] != self.center_.shape[1]:
            raise ValueError(
                f"DeepO2PClassifier: expected images of {self.center_.shape[1]} channels as in "
                f"fit, got {images.shape[1]}"
            )
        where = images.device
        images = (images - self.center_.to(where)) / self.scale_.to(where)
        model = self.model_ if where.type == "cpu" else copy.deepcopy(self.model_).to(where)
        return torch.cat([model(part) for part in images.split(256)]).cpu().numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each image."""
        best = self._logits(X).argmax(1)
        return self.classes_[best]

    def _images(self, X: ArrayLike) -> Tensor:
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
        return torch.from_numpy(X.astype(numpy.float32)).to(resolve_device(self.device))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.input_tags.two_d_array = False
        return tags
