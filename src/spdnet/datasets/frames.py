"""Frames of images, videos and marker files, and fewer numbers a frame, before covariances."""

import io
import re
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import scipy.linalg
from numpy.typing import NDArray

from spdnet.datasets.errors import DataError

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm", ".tif", ".tiff")
VIDEO_SUFFIXES = (".avi", ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv", ".flv")


def equalize(images: NDArray[Any]) -> NDArray[Any]:
    """Spread the grey levels of each image over 0 to 255.

    With ``C(v)`` the number of pixels at or below level ``v`` and ``v0`` the lowest level present,

    ``v -> round(255 (C(v) - C(v0)) / (C(255) - C(v0)))``,

    so that the lowest level goes to 0 and the highest to 255; an image of a single level is
    returned as it is. ``PIL.ImageOps.equalize`` counts the pixels below ``v`` and takes whole
    numbers of pixels a step, ``histeq`` of MATLAB aims at 64 levels: much the same in large
    images, never bit for bit.

    Parameters
    ----------
    images : array of uint8, shape (..., h, w)

    Returns
    -------
    array of uint8, shape (..., h, w)

    Examples
    --------
    >>> equalize(numpy.array([[10, 10], [11, 12]], dtype=numpy.uint8))
    array([[  0,   0],
           [128, 255]], dtype=uint8)
    """
    if images.dtype != numpy.uint8 or images.ndim < 2:
        raise ValueError(
            f"equalize: expected uint8 images of shape (..., h, w), got {images.dtype} of shape "
            f"{images.shape}; scale grey levels to 0 to 255 first"
        )
    if not images.size:
        return images.copy()
    levels = images.reshape(-1, images.shape[-2] * images.shape[-1])
    own = levels + 256 * numpy.arange(len(levels))[:, None]  # a histogram for each image
    counts = numpy.bincount(own.ravel(), minlength=256 * len(levels)).reshape(-1, 256)
    above = counts.cumsum(1) - numpy.take_along_axis(counts, levels.min(1, keepdims=True), 1)
    table = numpy.rint(255 * above.clip(0) / above[:, -1:].clip(1)).astype(numpy.uint8)
    table[above[:, -1] == 0] = numpy.arange(256)  # a single level
    return numpy.take_along_axis(table, levels, 1).reshape(images.shape)


def read_images(
    folder: str | Path, *, size: tuple[int, int] = (20, 20), equalized: bool = True
) -> NDArray[Any]:
    """The images of one folder as frames: turned to grey, resized, and only then equalised.

    Names are in natural order: ``frame2`` before ``frame10``; hidden files are passed over.
    Transparency and marks of orientation are ignored, 16 bits become 8, and of a file with
    several pages the first one counts.

    Parameters
    ----------
    folder : path
    size : pair of int
        Height and width of the frames.
    equalized : bool
        Whether :func:`equalize` is applied.

    Returns
    -------
    array, shape (T, h * w)
        From 0 to 1, row by row.

    Raises
    ------
    DataError
    """
    _check_size("read_images", size)
    files = [p for p in Path(folder).glob("*") if p.suffix.lower() in IMAGE_SUFFIXES]
    images = []
    for file in sorted((p for p in files if p.name[0] != "."), key=_natural):
        with _reading("read_images: expected an image", file, "video"):
            from PIL import Image

            with warnings.catch_warnings():
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                # Pillow knows more formats, some of which run programs
                with Image.open(file, formats=("PNG", "JPEG", "BMP", "PPM", "TIFF")) as image:
                    images.append(_resized(_grey(image), size))
    if not images:
        raise DataError(
            f"read_images: expected images ({', '.join(IMAGE_SUFFIXES)}) in {folder}, got none"
        )
    return _flat(images, equalized)


def read_video(
    file: str | Path, *, size: tuple[int, int] = (20, 20), equalized: bool = True, every: int = 1
) -> NDArray[Any]:
    """The frames of a video: grey, resized, then equalised, as by :func:`read_images`.

    One frame at a time is held in full size. A video that was cut short gives the frames before
    the cut if its format allows. Files that only name other files or addresses are refused.

    Parameters
    ----------
    file : path
    size, equalized
        As of :func:`read_images`.
    every : int
        One frame in so many is kept, beginning with the first.

    Returns
    -------
    array, shape (T, h * w)
        From 0 to 1, row by row.

    Raises
    ------
    DataError
    """
    _check_size("read_video", size)
    if every < 1:
        raise ValueError(f"read_video: expected every of at least 1, got {every}")
    images = []
    with _reading("read_video: expected a video", file, "video"):
        import av
        from PIL import Image

        alone = {"protocol_whitelist": ""}  # it opens nothing else
        with (
            Path(file).open("rb") as handle,
            av.open(handle, "r", container_options=alone) as video,
        ):
            for i, frame in enumerate(video.decode(video=0)):
                if i % every == 0:
                    grey = Image.fromarray(frame.to_ndarray(format="gray"))
                    images.append(_resized(grey, size))
    if not images:
        raise DataError(f"read_video: expected frames in {file}, got none; it may be cut short")
    return _flat(images, equalized)


def read_c3d(file: str | Path, *, drop_unseen: bool = False) -> tuple[NDArray[Any], list[str]]:
    """Positions of markers.

    Where a marker is not seen (its residual is negative) its position is interpolated between the
    frames before and after, or is the nearest one at the beginning and the end.

    Parameters
    ----------
    file : path
    drop_unseen : bool
        Leave out markers that no frame has seen, which are an error otherwise.

    Returns
    -------
    positions : array, shape (T, M, 3)
        In the unit of the file.
    names : list of str
        Of the markers; those without a label are called ``point 1`` and so on.

    Raises
    ------
    DataError
    """
    points: list[NDArray[Any]] = []
    with _reading("read_c3d: expected a C3D file", file, "c3d"), warnings.catch_warnings():
        import c3d

        # of analog channels and names; its other warnings may concern the positions
        warnings.filterwarnings("ignore", "No analog data|missing parameter", module="c3d")
        reader = c3d.Reader(io.BytesIO(Path(file).read_bytes()))
        M, T = int(reader.point_used), int(reader.frame_count)
        if M:  # without points nothing would end the frames of a damaged file
            points.extend(frame[:, :4] for _, frame, _ in reader.read_frames())
        labels = reader.get("POINT:LABELS")
        names = [] if labels is None else [str(name).strip() for name in labels.string_array]
    if not points or len(points) != T:
        raise DataError(
            f"read_c3d: expected {T} frames of points in {file}, got {len(points)} frames of {M} "
            "points; it is cut short or empty"
        )
    names = [*names[:M], *(f"point {i + 1}" for i in range(len(names), M))]
    values = numpy.stack(points).astype(numpy.float64)
    seen = numpy.isfinite(values).all(-1) & (values[..., 3] >= 0)
    kept = numpy.flatnonzero(seen.any(0))
    if len(kept) == 0 or (len(kept) < M and not drop_unseen):
        lost = [names[i] for i in range(M) if i not in kept]
        raise DataError(
            f"read_c3d: expected every marker in some frame of {file}, got none of "
            f"{', '.join(lost[:5])}; drop_unseen=True leaves out some, not all"
        )
    return _filled(values[:, kept, :3], seen[:, kept]), [names[i] for i in kept]


@dataclass(frozen=True)
class Projection:
    """Principal components: frames become ``(frames - mean) components^T``.

    Parameters
    ----------
    mean : array, shape (d,)
    components : array, shape (k, d)
        Orthonormal rows, the direction of the largest variance first.
    """

    mean: NDArray[Any]
    components: NDArray[Any]

    def __call__(self, frames: NDArray[Any]) -> NDArray[Any]:
        """Frames of shape (T, d) to shape (T, k)."""
        if frames.ndim != 2 or frames.shape[1] != len(self.mean):
            raise ValueError(
                f"Projection: expected frames of shape (T, {len(self.mean)}), got {frames.shape}; "
                "use features of the kind that it was fitted to"
            )
        return (frames - self.mean) @ self.components.T


def fit_pca(sequences: Iterable[NDArray[Any]], n_components: int) -> Projection:
    """Principal components of the frames of all sequences, which are read once, one by one.

    The scatters of ``n`` and ``m`` frames whose means differ by ``delta`` merge to their sum and
    ``n m / (n + m) delta delta^T``. In each component the entry of largest magnitude is positive.

    Parameters
    ----------
    sequences : iterable of array, shape (T_i, d)
        Memory grows with ``d^2``: some thousand features at most.
    n_components : int
        At most the number of directions in which frames vary, which is below that of frames.

    Raises
    ------
    DataError
    """
    if n_components < 1:
        raise ValueError(f"fit_pca: expected n_components of at least 1, got {n_components}")
    n, mean, scatter = 0, numpy.zeros(0), numpy.zeros((0, 0))
    for i, sequence in enumerate(sequences):
        frames = numpy.asarray(sequence, dtype=numpy.float64)
        if i == 0 and frames.ndim == 2:
            mean, scatter = numpy.zeros(frames.shape[1]), numpy.zeros((frames.shape[1],) * 2)
        if frames.ndim != 2 or frames.shape[1] != len(mean) or not numpy.isfinite(frames).all():
            raise DataError(
                f"fit_pca: expected finite frames of shape (T, {len(mean) or 'd'}), got "
                f"{frames.shape} in sequence {i}, or NaN or infinity there"
            )
        if m := len(frames):
            delta = frames.mean(0) - mean
            between = numpy.sqrt(n * m / (n + m)) * delta
            rows = numpy.vstack([frames - frames.mean(0), between])
            scatter += rows.T @ rows
            mean = mean + delta * (m / (n + m))
            n += m
    d, k, rank, eps = len(mean), n_components, 0, numpy.finfo(numpy.float64).eps
    if d and n:
        values, vectors = scipy.linalg.eigh(scatter, subset_by_index=(max(d - k, 0), d - 1))
        rounding = eps * (n + d) * (values[-1] + eps * n * (mean @ mean))
        rank = int((values > rounding).sum())
    if rank < k:
        raise DataError(
            f"fit_pca: expected frames that vary in at least n_components={k} directions, got {n} "
            f"frames of length {d} that vary in {rank}; ask for fewer components"
        )
    components = vectors.T[::-1]
    largest = numpy.take_along_axis(components, numpy.abs(components).argmax(1)[:, None], 1)
    return Projection(mean, components * numpy.sign(largest))


@contextmanager
def _reading(expected: str, file: str | Path, extra: str) -> Iterator[None]:
    """Missing libraries, and all that decoders raise on damaged bytes, as our error."""
    try:
        yield
    except ImportError as error:
        raise DataError(
            f'{expected} and its library, got {error}; pip install "spdnet[{extra}]"'
        ) from error
    except Exception as error:
        raise DataError(f"{expected}, but {file} is missing or damaged: {error!r}") from error


def _check_size(who: str, size: tuple[int, int]) -> None:
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"{who}: expected size=(height, width) of at least 1, got {size}")


def _natural(path: Path) -> tuple[list[int | str], str]:
    """Numbers in names by value: every second piece is one."""
    pieces = re.split("([0-9]+)", path.name.lower())
    return [int(text) if i % 2 else text for i, text in enumerate(pieces)], path.name


def _grey(image: Any) -> Any:
    """A Pillow image with grey levels from 0 to 255, of 8 bits or real numbers."""
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits, which Pillow would cut off at 255
        values = numpy.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError(f"levels from {values.min()} to {values.max()}, not of 16 bits")
        return Image.fromarray((values / 257).astype(numpy.float32))
    if image.mode == "F":
        raise ValueError("real numbers instead of grey levels or colours")
    # Pillow warns of transparent colours of a palette that are not made RGBA first
    return (image.convert("RGBA") if "transparency" in image.info else image).convert("L")


def _resized(grey: Any, size: tuple[int, int]) -> NDArray[Any]:
    from PIL import Image

    small = grey.resize(size[::-1], Image.Resampling.BILINEAR)  # over all pixels: no aliasing
    return numpy.rint(numpy.asarray(small)).astype(numpy.uint8)


def _flat(images: list[NDArray[Any]], equalized: bool) -> NDArray[Any]:
    frames = equalize(numpy.stack(images)) if equalized else numpy.stack(images)
    return frames.reshape(len(frames), -1) / 255.0


def _filled(positions: NDArray[Any], seen: NDArray[Any]) -> NDArray[Any]:
    """Positions (T, M, 3) interpolated in time where not seen (T, M)."""
    times = numpy.arange(len(positions))
    for marker in numpy.flatnonzero(~seen.all(0)):
        known = seen[:, marker]
        for axis in range(3):
            values = positions[known, marker, axis]
            positions[:, marker, axis] = numpy.interp(times, times[known], values)
    return positions
