"""Spectral matrices: the covariance of signals in frequency bands."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from spdnet._autograd import is_concrete
from spdnet._checks import require_count, require_number
from spdnet._precision import working_dtype
from spdnet.covariance.arrays import accept_arrays, require_signals
from spdnet.linalg import symmetrize


@accept_arrays
def cross_spectrum(
    X: Tensor,
    bands: Sequence[tuple[float, float]],
    fs: float = 1.0,
    *,
    window: int = 128,
    overlap: float = 0.5,
) -> Tensor:
    r"""Compute the cross-spectral matrix of each frequency band, complex Hermitian.

    .. math:: S_b = \sum_{f \in b} \frac{c_f}{W N \lVert h \rVert^2}
        \sum_{w=1}^W \hat x_w(f) \, \hat x_w(f)^H

    Here :math:`\hat x_w` is the Fourier transform of window :math:`w` of length :math:`N`, times
    the Hann window :math:`h`. The factor :math:`c_f` is 2, for negative frequencies, except 1 at
    0 and the Nyquist frequency. The real part ``.real``, also named co-spectrum, is the covariance
    of the signals in the band; over all frequencies it sums to that of the windowed signals.

    The rank is at most the number of windows times the number of frequencies in the band, and the
    rank of the real part is at most twice this number. :func:`regularize` makes the matrices, or
    their real parts, positive definite.

    Parameters
    ----------
    X : Tensor or array, shape (..., channels, time)
        The mean of each channel is subtracted.
    bands : sequence of pairs
        Lowest frequency of each band, and the upper limit, which is not part of it.
    fs : float
        Sampling frequency, in the unit of the bands.
    window : int
        Length of a window in observations; the resolution is ``fs / window``.
    overlap : float
        Fraction of a window that overlaps with the next one.

    Returns
    -------
    Tensor or array, shape (..., len(bands), channels, channels)

    References
    ----------
    P. D. Welch, "The use of fast Fourier transform for the estimation of power spectra", IEEE
    Trans. Audio Electroacoust., 1967. https://doi.org/10.1109/TAU.1967.1161901

    Examples
    --------
    >>> import numpy
    >>> from spdnet.covariance import cross_spectrum
    >>> phase = 2 * numpy.pi * 10 * numpy.arange(1280) / 128
    >>> X = numpy.stack([numpy.sin(phase), numpy.cos(phase)])  # 10 Hz
    >>> S = cross_spectrum(X, [(8, 12), (20, 30)], fs=128)
    >>> bool(abs(S[0] - numpy.array([[0.5, -0.5j], [0.5j, 0.5]])).max() < 1e-3)
    True
    >>> bool(abs(S[1]).max() < 1e-3)
    True
    """
    return _cross_spectrum("cross_spectrum", X, bands, fs, window, overlap)


@accept_arrays
def coherence(
    X: Tensor,
    bands: Sequence[tuple[float, float]],
    fs: float = 1.0,
    *,
    window: int = 128,
    overlap: float = 0.5,
) -> Tensor:
    r"""Compute the magnitude-squared coherence of each frequency band.

    .. math:: K_{ij} = \frac{|S_{ij}|^2}{S_{ii} S_{jj}}

    The matrix is positive semi-definite by the Schur product theorem, with a unit diagonal. If
    :func:`cross_spectrum` has rank ``r``, its rank is at most ``r * r``: one window and one
    frequency give the matrix of ones. The imaginary coherence is not positive semi-definite.

    Parameters and shape of the result as in :func:`cross_spectrum`.

    Examples
    --------
    >>> import numpy
    >>> from spdnet.covariance import coherence
    >>> noise = numpy.random.default_rng(0).normal(size=(2, 12800))
    >>> X = numpy.stack([noise[0], noise[0] + noise[1]])
    >>> coherence(X, [(8, 30)], fs=128).round(1)
    array([[[1. , 0.5],
            [0.5, 1. ]]])
    """
    S = _cross_spectrum("coherence", X, bands, fs, window, overlap)
    power = S.diagonal(dim1=-2, dim2=-1).real
    varies = X.amin(-1) < X.amax(-1)  # the power of a constant is a rounding error
    power = torch.where(varies[..., None, :], power, 0)
    if is_concrete(X) and not (power > 0).all():
        *_, band, channel = (power <= 0).nonzero()[0].tolist()
        raise ValueError(
            f"coherence: expected power of every channel in every band, got none of channel "
            f"{channel} in {tuple(bands[band])}; drop that channel"
        )
    by_row, by_column = S / power[..., :, None], S / power[..., None, :]  # products underflow
    return (by_row * by_column.conj()).real.to(X.dtype)


def _cross_spectrum(
    who: str,
    X: Tensor,
    bands: Sequence[tuple[float, float]],
    fs: float,
    window: int,
    overlap: float,
) -> Tensor:
    require_signals(who, X)
    require_number(who, "fs", fs, above=0)
    require_count(who, "window", window)
    require_number(who, "overlap", overlap, at_least=0, below=1)
    T = X.shape[-1]
    if not 2 <= window <= T:
        raise ValueError(
            f"{who}: expected window from 2 to {T}, the number of observations, got {window}"
        )
    X = X.to(working_dtype(X.dtype))
    X = X - X.mean(-1, keepdim=True)
    taper = torch.hann_window(window, dtype=X.dtype, device=X.device)
    windows = X.unfold(-1, window, max(1, round((1 - overlap) * window))) * taper
    windows = windows / (math.sqrt(windows.shape[-2] * window) * taper.norm())
    F = torch.fft.rfft(windows) if windows.numel() else windows[..., : window // 2 + 1] + 0j
    frequencies = torch.arange(F.shape[-1], dtype=torch.float64) * (fs / window)
    weight = torch.full_like(frequencies, 2.0)
    weight[0] = 1.0
    if window % 2 == 0:
        weight[-1] = 1.0
    F = F * weight.sqrt().to(X)
    spectra = []
    for low, high in bands:
        inside = (low <= frequencies) & (frequencies < high)
        if not inside.any():
            raise ValueError(
                f"{who}: expected bands with a multiple of fs / window = {fs / window:g} up to "
                f"{fs / 2:g}, got none in ({low}, {high}); use a longer window or a wider band"
            )
        Y = F[..., inside.to(F.device)].flatten(-2)
        spectra.append(symmetrize(Y @ Y.mH))
    if not spectra:
        raise ValueError(f"{who}: expected at least one band (low, high), got none")
    return torch.stack(spectra, -3)
