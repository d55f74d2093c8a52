"""Windows of sequences."""

from collections.abc import Sequence
from typing import Any

from spdnet._checks import require_count


def segment(
    frames: Sequence[Any] | Any,
    length: int,
    stride: int | None = None,
    min_length: int | None = None,
) -> list[Any]:
    """Return the list of windows of a sequence along its first dimension.

    Split into training and test sequences first, and cut the training sequences only: windows of
    one sequence on both sides would leak information.

    Parameters
    ----------
    frames : sequence, Tensor or array, shape (frames, ...)
    length : int
        Number of frames in a window.
    stride : int, optional
        Number of frames from one window to the next. Default: ``length``, without overlap.
    min_length : int, optional
        Keep a shorter last window, or a shorter sequence, if it has at least this many frames.
        Default: ``length``.

    Examples
    --------
    >>> from spdnet.covariance import segment
    >>> segment("abcdefgh", 3)
    ['abc', 'def']
    >>> segment("abcdefgh", 3, min_length=2)
    ['abc', 'def', 'gh']
    >>> segment("abcdefgh", 4, stride=2)
    ['abcd', 'cdef', 'efgh']
    """
    stride = length if stride is None else stride
    min_length = length if min_length is None else min_length
    for name, value in (("length", length), ("stride", stride), ("min_length", min_length)):
        require_count("segment", name, value)
    starts = range(0, max(len(frames) - length, 0) + 1, stride)
    windows = [frames[start : start + length] for start in starts]
    rest = starts[-1] + stride
    if starts[-1] + length < len(frames) and len(frames) - rest >= min_length:
        windows.append(frames[rest:])
    return [window for window in windows if len(window) >= min(length, min_length)]
