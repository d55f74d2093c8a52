"""SPD descriptors of sequences, and building a file of them."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy
import scipy.linalg
from numpy.typing import NDArray

from spdnet._checks import require_choice
from spdnet.covariance import estimate, gaussian_embedding, segment
from spdnet.data.errors import DataError
from spdnet.data.examination import REMEDIES, clean, examine
from spdnet.data.sources import Source
from spdnet.data.store_writer import StoreWriter
from spdnet.options.commands import DescriptorOptions
from spdnet.options.option import check_options, document
from spdnet.options.run import DTYPES


@dataclass(frozen=True)
class Projection:
    """Projection ``(frames - mean) components^T`` with orthonormal components ``(k, d)``."""

    mean: NDArray[Any]
    components: NDArray[Any]

    def __call__(self, frames: NDArray[Any]) -> NDArray[Any]:
        """Project frames ``(T, d)`` to ``(T, k)``."""
        if frames.ndim != 2 or frames.shape[1] != len(self.mean):
            raise ValueError(
                f"Projection: expected frames of shape (T, {len(self.mean)}), got {frames.shape}; "
                "use the same kind of features as in fit_pca"
            )
        return (frames - self.mean) @ self.components.T


def fit_pca(sequences: Iterable[NDArray[Any]], n_components: int) -> Projection:
    """Fit principal components to the frames of all sequences in one pass.

    The scatter matrices of ``n`` and ``m`` frames whose means differ by ``delta`` are merged by
    adding ``n m / (n + m) delta delta^T``; memory grows with ``d^2``. The largest entry of each
    component is positive. ``n_components`` is at most the rank of the centered frames.
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
                f"fit_pca: expected finite frames of shape (T, {len(mean) or 'd'}), got shape "
                f"{frames.shape}, or NaN or infinity, in sequence {i}"
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
            f"frames of length {d} that vary in {rank}; use fewer components"
        )
    components = vectors.T[::-1]
    largest = numpy.take_along_axis(components, numpy.abs(components).argmax(1)[:, None], 1)
    return Projection(mean, components * numpy.sign(largest))


@document
@dataclass(frozen=True, kw_only=True)
class Descriptor(DescriptorOptions):
    """Conversion of the frames of a sequence to SPD matrices.

    For frames ``(T, d)``, ``covariance`` is a matrix ``(d, d)``, and ``gaussian`` a matrix
    ``(d + 1, d + 1)``: see :func:`spdnet.covariance.gaussian_embedding`. For ``reg`` and ``mode``,
    see :func:`spdnet.covariance.regularize`.

    Parameters
    ----------
    {options}

    Examples
    --------
    >>> import numpy
    >>> from spdnet.data import Descriptor
    >>> frames = numpy.random.default_rng(0).normal(size=(40, 5, 3))
    >>> Descriptor()(frames).shape, Descriptor(clip_length=10).cut(frames).shape
    ((15, 15), (8, 15, 15))
    >>> Descriptor(clip_length=0.5, clips=5).cut(frames).shape
    (6, 15, 15)
    """

    def __post_init__(self) -> None:
        check_options("Descriptor", self)
        length = self.clip_length or 2
        if length >= 1 and (length < 2 or length != int(length)):
            raise ValueError(
                "Descriptor: expected clip_length as a number of frames, at least two, or a "
                f"fraction below 1, got {length:g}"
            )
        given = [name for name in ("clip_stride", "clips") if getattr(self, name) is not None]
        if len(given) > (self.clip_length is not None):
            raise ValueError(
                f"Descriptor: expected clip_length with clip_stride or clips, got {given} with "
                f"clip_length {self.clip_length}"
            )

    def flat(
        self, frames: NDArray[Any], project: Projection | None = None
    ) -> NDArray[numpy.float64]:
        """Return frames as vectors ``(T, d)``, relative to the root, and projected if requested."""
        frames = numpy.asarray(frames, dtype=numpy.float64)
        if frames.ndim < 2 or len(frames) < 2:
            raise DataError(
                f"build: expected frames (T, ...) with at least two of them, got {frames.shape}"
            )
        if self.root is not None:
            if frames.ndim != 3 or not 0 <= self.root < frames.shape[1]:
                raise DataError(
                    f"build: expected frames (T, joints, 3) with a joint {self.root}, got "
                    f"{frames.shape}"
                )
            frames = frames - frames[:, self.root : self.root + 1]
        vectors = frames.reshape(len(frames), -1)
        return vectors if project is None else project(vectors)

    def __call__(
        self, frames: NDArray[Any], project: Projection | None = None
    ) -> NDArray[numpy.float64]:
        """Return the matrix ``(n, n)`` of all frames ``(T, ...)``."""
        return self._matrix(self.flat(frames, project))

    def cut(
        self, frames: NDArray[Any], project: Projection | None = None
    ) -> NDArray[numpy.float64]:
        """Return the matrices ``(k, n, n)`` of a training sequence and of its clips."""
        vectors = self.flat(frames, project)
        whole, T = self._matrix(vectors)[None], len(vectors)
        length = self.clip_length or T
        length = max(2, round(length * T) if length < 1 else int(length))
        if length >= T:
            return whole
        if self.clips is None:
            windows = segment(vectors, length, self.clip_stride or max(1, length // 2))
        else:
            starts = numpy.linspace(0, T - length, min(self.clips, T - length + 1)).round()
            windows = [
                vectors[start : start + length] for start in numpy.unique(starts.astype(int))
            ]
        return numpy.concatenate([whole, self._matrix(numpy.stack(windows))])

    def _matrix(self, vectors: NDArray[numpy.float64]) -> NDArray[numpy.float64]:
        features = vectors.swapaxes(-1, -2)
        describe = gaussian_embedding if self.kind == "gaussian" else estimate
        return describe(features, reg=self.reg, mode=self.mode)


def build(
    sources: Sequence[Source],
    path: str | Path,
    descriptor: Descriptor | None = None,
    *,
    dtype: str = "float64",
    bad: str = "refuse",
    provenance: Mapping[str, Any] | None = None,
    on_source: Callable[[int, int], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Path:
    """Write the matrices of all sources to one ``.npz`` file, with classes, parts and groups.

    After an interruption, the same call resumes. :func:`read` reads the file.

    Parameters
    ----------
    sources : sequence of Source
    path : path
    descriptor : Descriptor, optional
        Conversion of sequences; None if the sources are matrices.
    dtype : {"float64", "float32"}
    bad : {"refuse", "drop", "repair"}
        Treatment of matrices that are not SPD: see :func:`clean`.
    provenance : mapping, optional
        Plain values to store in the file.
    on_source, on_note : callable, optional
        Called with the number of sources written and their total; with messages for the user.

    Examples
    --------
    >>> import numpy, tempfile
    >>> from pathlib import Path
    >>> from spdnet.data import Descriptor, build, read
    >>> from spdnet.data.sources import sequence_sources
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for kind in ("run", "walk"):
    ...         Path(folder, "motions", kind).mkdir(parents=True)
    ...         frames = numpy.random.default_rng(0).normal(size=(40, 5))
    ...         numpy.save(f"{folder}/motions/{kind}/1.npy", frames)
    ...     sources = sequence_sources(f"{folder}/motions")
    ...     data = read(build(sources, f"{folder}/motions.npz", Descriptor()))
    >>> data.X.shape, data.y.tolist()
    ((2, 5, 5), ['run', 'walk'])
    """
    path = Path(path)
    if not sources:
        raise DataError("build: expected at least one source, got none")
    require_choice("build", "dtype", dtype, DTYPES)
    require_choice("build", "bad", bad, REMEDIES)
    if path.suffix != ".npz":
        raise ValueError(f"build: expected the name of a .npz file, got {path.name}")
    if path.exists():  # before the writer locks the file
        raise FileExistsError(f"build: expected a new file, but {path} exists; choose another name")
    if descriptor is not None and None in {source.split for source in sources}:
        for name in ("clip_length", "pca"):
            if getattr(descriptor, name) is not None:
                raise DataError(
                    f"build: expected a split into train and test for {name}, got none: clips and "
                    "components made before the split leak test data; choose a test part"
                )
    name, times = Counter(source.name for source in sources).most_common(1)[0]
    if times > 1:
        raise DataError(f"build: expected sources of different names, got {times} called {name!r}")
    about = [[s.name, s.y, s.split, s.group, s.stamp] for s in sources]
    plan = {
        "descriptor": None if descriptor is None else asdict(descriptor),
        "dtype": dtype,
        "bad": bad,
        "sources": hashlib.sha256("".join(map(json.dumps, about)).encode()).hexdigest(),
    }
    with StoreWriter(path, plan) as writer:
        done = set(writer.done)
        left = [source for source in sources if source.name not in done]
        project = None
        if descriptor is not None and descriptor.pca is not None and left:
            train = [source for source in sources if source.split == "train"]
            project = fit_pca((descriptor.flat(s.load()) for s in train), descriptor.pca)
        wide: list[str] = []  # sources whose axes seem swapped
        try:
            for i, source in enumerate(left, len(sources) - len(left) + 1):
                values = source.load()
                if source.features and values.ndim == 2 and len(values) < values.shape[1]:
                    wide.append(f"{source.name} ({len(values)} of {values.shape[1]})")
                X = _matrices(source, values, descriptor, project, dtype, bad)
                writer.add(source.name, X, y=source.y, split=source.split, groups=source.group)
                if on_source is not None:
                    on_source(i, len(sources))
        finally:  # also if swapped axes cause an error
            if wide and on_note is not None:
                on_note(
                    f"fewer samples than channels in {len(wide)}, such as {wide[0]}: are the axes "
                    "swapped? --of sequences takes time in rows, --of signals channels in rows"
                )
        return writer.finish({**(provenance or {}), **plan, "empty": writer.empty})


def _matrices(
    source: Source,
    values: NDArray[Any],
    descriptor: Descriptor | None,
    project: Projection | None,
    dtype: str,
    bad: str,
) -> NDArray[Any]:
    """Return the SPD matrices ``(k, n, n)`` of a source."""
    if values.dtype.kind not in "biuf":
        raise DataError(f"build: expected real numbers in {source.name}, got {values.dtype}")
    try:
        with numpy.errstate(all="ignore"):  # overflow is found below, as not finite
            if descriptor is None:
                X = values[None]
            elif source.split == "train":
                X = descriptor.cut(values, project)
            else:
                X = descriptor(values, project)[None]
            if X.ndim != 3 or X.shape[1] != X.shape[2] or X.shape[1] == 0:
                raise DataError(
                    f"expected a square matrix, got shape {X.shape[1:]}; recordings are built with "
                    "--of signals, channels in rows, or with --of sequences, time in rows"
                )
            X = X.astype(dtype)
            if bad == "drop":
                return numpy.delete(X, examine(X).bad, axis=0)
            return clean(X, bad)[0]
    except ValueError as error:
        raise DataError(f"build: {source.name}: {error}") from error
