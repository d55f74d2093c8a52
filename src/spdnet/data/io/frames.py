"""Gray frames from images and videos."""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray

from spdnet.data.errors import DataError, decoding

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".pgm", ".ppm", ".tif", ".tiff")
VIDEO_SUFFIXES = (".avi", ".mp4", ".m4v", ".mov", ".mkv", ".webm", ".mpg", ".mpeg", ".wmv", ".flv")
_MOST_PIXELS = 2**26  # per frame: 8192 by 8192


def equalize(images: NDArray[Any]) -> NDArray[Any]:
    """Equalize the histogram of each image.

    With ``C(v)`` the number of pixels at or below level ``v`` and ``v0`` the lowest level present,

    ``v -> round(255 (C(v) - C(v0)) / (C(255) - C(v0)))``.

    ``images`` are uint8 of shape ``(..., h, w)``. An image of a single level is returned unchanged.
    ``PIL.ImageOps.equalize`` and MATLAB's ``histeq`` give similar, not identical, results.

    >>> equalize(numpy.array([[10, 10], [11, 12]], dtype=numpy.uint8))
    array([[  0,   0],
           [128, 255]], dtype=uint8)
    """
    if images.dtype != numpy.uint8 or images.ndim < 2:
        raise ValueError(
            f"equalize: expected uint8 images of shape (..., h, w), got {images.dtype} of shape "
            f"{images.shape}; scale gray levels to 0 to 255 first"
        )
    if not images.size:
        return images.copy()
    levels = images.reshape(-1, images.shape[-2] * images.shape[-1])
    own = levels + 256 * numpy.arange(len(levels))[:, None]  # one histogram per image
    counts = numpy.bincount(own.ravel(), minlength=256 * len(levels)).reshape(-1, 256)
    above = counts.cumsum(1) - numpy.take_along_axis(counts, levels.min(1, keepdims=True), 1)
    table = numpy.rint(255 * above.clip(0) / above[:, -1:].clip(1)).astype(numpy.uint8)
    table[above[:, -1] == 0] = numpy.arange(256)  # a single level
    return numpy.take_along_axis(table, levels, 1).reshape(images.shape)


def read_images(
    folder: str | Path, *, size: tuple[int, int] = (20, 20), equalized: bool = True
) -> NDArray[Any]:
    """Read the images of a folder as frames: gray, resized, then equalized.

    Return values from 0 to 1 of shape ``(T, h * w)``, with ``size = (h, w)``. Names are in natural
    order: ``frame2`` before ``frame10``. Transparency and orientation tags are ignored, 16 bits
    become 8, and the first page of several is read.
    """
    _check_size("read_images", size)
    files = [p for p in Path(folder).glob("*") if p.suffix.lower() in IMAGE_SUFFIXES]
    images = []
    for file in sorted((p for p in files if p.name[0] != "."), key=_natural):
        with decoding("read_images: expected an image", file, "video"):
            from PIL import Image

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about damaged tags
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                # some other formats of Pillow run external programs
                with Image.open(file, formats=("PNG", "JPEG", "BMP", "PPM", "TIFF")) as image:
                    images.append(_resized(_gray(image), size))
    if not images:
        raise DataError(
            f"read_images: expected images ({', '.join(IMAGE_SUFFIXES)}) in {folder}, got none"
        )
    return _flat(images, equalized)


def read_video(
    file: str | Path, *, size: tuple[int, int] = (20, 20), equalized: bool = True
) -> NDArray[Any]:
    """Read the frames of a video: see :func:`read_images`.

    Only one frame at a time is kept in full size. A truncated video gives the frames before the end
    if its format allows it. Playlists, which refer to other files, are refused.
    """
    _check_size("read_video", size)
    images = []
    with decoding("read_video: expected a video", file, "video"):
        import av
        from PIL import Image

        alone = {"protocol_whitelist": ""}  # do not open other files
        with (
            Path(file).open("rb") as handle,
            av.open(handle, "r", container_options=alone) as video,
        ):
            # a header may declare frames that exceed memory
            video.streams.video[0].codec_context.options = {"max_pixels": str(_MOST_PIXELS)}
            for frame in video.decode(video=0):
                gray = Image.fromarray(frame.to_ndarray(format="gray"))
                images.append(_resized(gray, size))
    if not images:
        raise DataError(f"read_video: expected frames in {file}, got none; it may be truncated")
    return _flat(images, equalized)


def _check_size(who: str, size: tuple[int, int]) -> None:
    if len(size) != 2 or min(size) < 1:
        raise ValueError(f"{who}: expected size=(height, width) of at least 1, got {size}")


def _natural(path: Path) -> tuple[list[int | str], str]:
    pieces = re.split("([0-9]+)", path.name.lower())
    return [int(text) if i % 2 else text for i, text in enumerate(pieces)], path.name


def _gray(image: Any) -> Any:
    """Convert a Pillow image to gray levels from 0 to 255."""
    from PIL import Image

    if image.mode.startswith("I"):  # 16 bits, which Pillow would clip to 255
        values = numpy.asarray(image)
        if values.min() < 0 or values.max() > 65535:
            raise ValueError(f"levels from {values.min()} to {values.max()}, not of 16 bits")
        return Image.fromarray((values / 257).astype(numpy.float32))
    if image.mode == "F":
        raise ValueError("real numbers instead of gray levels or colors")
    # Pillow warns about transparent palettes that are not converted to RGBA first
    return (image.convert("RGBA") if "transparency" in image.info else image).convert("L")


def _resized(gray: Any, size: tuple[int, int]) -> NDArray[Any]:
    from PIL import Image

    small = gray.resize(size[::-1], Image.Resampling.BILINEAR)  # averages over all pixels
    return numpy.rint(numpy.asarray(small)).astype(numpy.uint8)


def _flat(images: list[NDArray[Any]], equalized: bool) -> NDArray[Any]:
    frames = equalize(numpy.stack(images)) if equalized else numpy.stack(images)
    return frames.reshape(len(frames), -1) / 255.0
