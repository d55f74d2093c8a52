"""SignalNet: networks for signals, with the argument names of EEG libraries."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from spdnet._checks import require_choice, require_count, require_number, require_shrinking
from spdnet.models.spdnet import SPDNet
from spdnet.models.tsmnet import TSMNet
from spdnet.nn import CovPool


class SignalNet(nn.Module):
    """TSMNet, or SPDNet on the covariance, with the arguments ``n_chans`` and ``n_outputs``.

    An ``EEGClassifier`` of braindecode infers these arguments from the data.

    Parameters
    ----------
    n_chans : int
        Number of channels.
    n_outputs : int
        Number of classes.
    n_times : int, optional
        Length of the signals. Signals of another length are an error; any length if not given.
    model : {"tsmnet", "spdnet"}
    dims : sequence of int, optional
        Sizes of the matrices. For ``tsmnet``, of the covariance and after the BiMap, ``(40, 20)``.
        For ``spdnet``, after each BiMap, up to ``(64, 64)``; ``n_chans`` may come first.
    gain : float
        Factor that multiplies the signals, such as 1e6 for volts: the thresholds of ReEig are
        absolute, and covariances of signals in volts would be below them.
    **settings
        Further arguments of :class:`spdnet.models.TSMNet` or :class:`spdnet.SPDNet`, whose
        ``bias`` is True here by default.

    Attributes
    ----------
    network : TSMNet or SPDNet

    Examples
    --------
    >>> import torch
    >>> from spdnet.models import SignalNet
    >>> SignalNet(n_chans=8, n_outputs=3, n_times=100)(torch.randn(10, 8, 100)).shape
    torch.Size([10, 3])
    """

    def __init__(
        self,
        n_chans: int,
        n_outputs: int,
        n_times: int | None = None,
        *,
        model: str = "tsmnet",
        dims: Sequence[int] | None = None,
        gain: float = 1.0,
        **settings: Any,
    ) -> None:
        super().__init__()
        counts = {"n_chans": n_chans, "n_outputs": n_outputs, "n_times": n_times}
        for name, count in counts.items():
            if count is not None or name != "n_times":
                require_count("SignalNet", name, count)
        require_choice("SignalNet", "model", model, ("tsmnet", "spdnet"))
        require_number("SignalNet", "gain", gain, above=0)
        self.n_chans = n_chans
        self.n_outputs = n_outputs
        self.n_times = n_times
        self.gain = gain
        self.network: TSMNet | SPDNet
        if model == "tsmnet":
            sizes = (40, 20) if dims is None else require_shrinking("SignalNet", dims)
            if len(sizes) != 2:
                raise ValueError(
                    "SignalNet: expected two dims with model='tsmnet', of the covariance and after "
                    f"the BiMap, got {sizes}"
                )
            self.network = TSMNet(
                *(n_chans, n_outputs), spatial_filters=sizes[0], dim=sizes[1], **settings
            )
        else:
            sizes = (n_chans, *(min(n_chans, 64),) * 2) if dims is None else tuple(dims)
            sizes = sizes if sizes[:1] == (n_chans,) else (n_chans, *sizes)
            self.pool = CovPool()
            self.network = SPDNet(sizes, n_outputs, **{"bias": True, **settings})

    def reset_parameters(self) -> None:
        """Draw new weights, and reset all statistics."""
        self.network.reset_parameters()

    def forward(self, X: Tensor, domain: Tensor | None = None) -> Tensor:
        """Compute the logits ``(B, n_outputs)`` of signals ``(B, n_chans, n_times)``.

        ``domain`` is ``(B,)``, for a network that was constructed with ``n_domains``.
        """
        n_times = self.n_times
        is_valid = isinstance(X, Tensor) and X.ndim == 3 and X.shape[1] == self.n_chans
        if not is_valid or n_times not in (None, X.shape[2]):
            shape = tuple(X.shape) if isinstance(X, Tensor) else type(X).__name__
            length = "n_times" if n_times is None else n_times
            raise ValueError(
                f"SignalNet: expected signals (B, {self.n_chans}, {length}), got {shape}"
            )
        X = self.gain * X
        if isinstance(self.network, SPDNet):
            X = self.pool(X)
        return self.network(X, domain)
