"""Motion capture: joints from Acclaim files (.asf, .amc), and markers from C3D files."""

import io
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray
from scipy.spatial.transform import Rotation

from spdnet.data.errors import DataError, decoding

_ORDER = {kind + axis for kind in "TR" for axis in "XYZ"}
_MOST = 2**24  # positions in all frames: bones without degrees of freedom need no bytes in a file


@dataclass(frozen=True)
class Bone:
    """Bone of a skeleton: its vector at rest, rotation axes ``(3, 3)`` and degrees of freedom."""

    name: str
    offset: NDArray[Any]
    axis: NDArray[Any]
    dof: tuple[str, ...]


@dataclass(frozen=True)
class Skeleton:
    """Tree of bones, by name, each of which starts at the end of its parent or at ``root``.

    ``order`` is that of the root's values, such as ``TX TY TZ RX RY RZ``; ``unit`` divides all
    lengths.
    """

    bones: dict[str, Bone]
    parent: dict[str, str]
    order: tuple[str, ...]
    degrees: bool
    unit: float

    @property
    def connected(self) -> list[str]:
        """Names of the bones that are connected to the root, each after its parent."""
        children: dict[str, list[str]] = {}
        for child, parent in self.parent.items():
            children.setdefault(parent, []).append(child)
        names = ["root"]
        for name in names:  # grows during the loop
            names += children.get(name, [])
        return names[1:]

    @property
    def joints(self) -> list[str]:
        """Names of the joints: the root, then the bones that end in one, in file order."""
        connected = set(self.connected)
        return ["root", *(name for name in self.bones if name in connected)]


def read_asf(path: str | Path) -> Skeleton:
    """Read a skeleton; lengths are divided by the unit of the file."""
    path = Path(path)
    sections = _sections(path)
    try:
        units = {line[0]: line[1] for line in sections["units"]}
        unit = _number(units.get("length", "1"))
        if unit <= 0:
            raise ValueError(f"unit {unit}")
        degrees = units.get("angle", "deg").startswith("deg")
        root = {line[0]: line[1:] for line in sections["root"]}
        bones = [_bone(lines, unit, degrees) for lines in _blocks(sections["bonedata"])]
        parent = {
            child: line[0] for line in _blocks(sections["hierarchy"])[0] for child in line[1:]
        }
        order = tuple(text.upper() for text in root["order"])
        if not {"TX", "TY", "TZ"} <= set(order) <= _ORDER or len(set(order)) < len(order):
            raise ValueError(f"order {root['order']} of the root")
        if [text.upper() for text in root.get("axis", ["XYZ"])] != ["XYZ"]:
            raise ValueError(f"axis {root['axis']} of the root")
        if any(float(v) != 0 for v in root.get("orientation", [])):
            raise ValueError(f"orientation {root['orientation']} of the root")
    except (KeyError, IndexError, ValueError) as error:
        raise DataError(f"read_asf: expected a skeleton in {path}, got {error!r}") from error
    by_name = {bone.name: bone for bone in bones}
    invalid = [name for name in parent if name not in by_name or name == "root"]
    if invalid or len(by_name) != len(bones):
        what = f"the bone {invalid[0]!r} only in the hierarchy" if invalid else "a bone twice"
        raise DataError(f"read_asf: expected each bone of {path} once, got {what}")
    return Skeleton(by_name, parent, order, degrees, unit)


def read_amc(path: str | Path, skeleton: Skeleton) -> NDArray[Any]:
    """Return the positions ``(frames, joints, 3)`` of :attr:`Skeleton.joints` in motion."""
    path = Path(path)
    values, header = _motion(path, skeleton)
    degrees = ":radians" not in header and (":degrees" in header or skeleton.degrees)
    T = len(values["root"])
    joint = {name: i for i, name in enumerate(skeleton.joints)}
    if T * len(joint) > _MOST:
        raise DataError(
            f"read_amc: expected at most {_MOST} joint positions in {path}, got {T} frames of "
            f"{len(joint)} joints; split the file"
        )
    positions = numpy.zeros((T, len(joint), 3))
    columns = dict(zip(skeleton.order, values["root"].T, strict=True))
    positions[:, 0] = numpy.stack([columns[f"T{a}"] for a in "XYZ"], -1) / skeleton.unit
    angles = {name[1].lower(): column for name, column in columns.items() if name[0] == "R"}
    rotations = {"root": _rotations(angles, T, degrees)}
    for name in skeleton.connected:
        bone, parent = skeleton.bones[name], skeleton.parent[name]
        angles = dict(zip((d[1] for d in bone.dof), values[name].T)) if bone.dof else {}
        own = _rotations(angles, T, degrees)
        rotations[name] = R = rotations[parent] @ bone.axis @ own @ bone.axis.T
        positions[:, joint[name]] = positions[:, joint[parent]] + R @ bone.offset
    return positions


def read_c3d(file: str | Path) -> tuple[NDArray[Any], list[str]]:
    """Read the positions of markers ``(T, M, 3)``, in the unit of the file, and their labels.

    Positions of a hidden marker, which has a negative residual, are interpolated in time and
    constant at both ends. A marker without a label is called ``point 1`` and so on.
    """
    points: list[NDArray[Any]] = []
    with decoding("read_c3d: expected a C3D file", file, "c3d"), warnings.catch_warnings():
        import c3d

        # all warnings are about the positions, except these
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("error", RuntimeWarning)
        harmless = "No analog data|missing parameter|Repeated group|no pointer|incomplete reading"
        warnings.filterwarnings("ignore", harmless)
        reader = c3d.Reader(io.BytesIO(Path(file).read_bytes()))
        M, T = int(reader.point_used), int(reader.frame_count)
        if M:  # without points, a damaged file may have endless frames
            points.extend(frame[:, :4] for _, frame, _ in reader.read_frames())
        labels = reader.get("POINT:LABELS")
        names = [] if labels is None else [str(name).strip() for name in labels.string_array]
    if not points or len(points) != T:
        raise DataError(
            f"read_c3d: expected {T} frames of points in {file}, got {len(points)} frames of {M} "
            "points; it is truncated or empty"
        )
    names = [*names[:M], *(f"point {i + 1}" for i in range(len(names), M))]
    values = numpy.stack(points).astype(numpy.float64)
    seen = numpy.isfinite(values).all(-1) & (values[..., 3] >= 0)
    if invalid := [names[i] for i in numpy.flatnonzero(~seen.any(0))]:
        raise DataError(
            f"read_c3d: expected every marker to be visible in some frame of {file}, but "
            f"{', '.join(invalid[:5])} never are; remove these markers from the file"
        )
    positions, times = values[..., :3], numpy.arange(T)
    for marker in numpy.flatnonzero(~seen.all(0)):
        known = seen[:, marker]
        for axis in range(3):
            at = positions[known, marker, axis]
            positions[:, marker, axis] = numpy.interp(times, times[known], at)
    return positions, names


def _bone(lines: list[list[str]], unit: float, degrees: bool) -> Bone:
    fields = {line[0]: line[1:] for line in lines}
    direction = numpy.array([_number(v) for v in fields["direction"][:3]])
    angles = {k: numpy.array([_number(v)]) for k, v in zip("xyz", fields["axis"][:3], strict=True)}
    if fields["axis"][3:] not in ([], ["XYZ"]):
        raise ValueError(f"axis {fields['axis'][3]}")
    dof = tuple(d for d in fields.get("dof", []) if d[0] == "r")
    if not set(dof) <= {"rx", "ry", "rz"} or len(set(dof)) < len(dof):
        raise ValueError(f"dof {dof}")
    return Bone(
        fields["name"][0],
        direction * _number(fields["length"][0]) / unit,
        _rotations(angles, 1, degrees)[0],
        dof,
    )


def _number(word: str) -> float:
    value = float(word)
    if not abs(value) < 1e100:
        raise ValueError(f"the number {word}")
    return value


def _rotations(angles: Mapping[str, NDArray[Any]], T: int, degrees: bool) -> NDArray[Any]:
    """Return rotations ``(T, 3, 3)`` about fixed axes: first x, then y, then z."""
    columns = numpy.stack([angles.get(axis, numpy.zeros(T)) for axis in "xyz"], -1)
    return Rotation.from_euler("xyz", columns, degrees=degrees).as_matrix()


def _sections(path: Path) -> dict[str, list[list[str]]]:
    """Return the words of each line by the ``:name`` of their section."""
    sections: dict[str, list[list[str]]] = {}
    current: list[list[str]] = []
    for _, words in _lines(path):
        if words[0].startswith(":"):
            current = sections.setdefault(words[0][1:].lower(), [])
        else:
            current.append(words)
    return sections


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the words of each line, without comments."""
    for number, line in enumerate(path.read_text(encoding="latin-1").splitlines(), 1):
        if words := line.split("#")[0].split():
            yield number, words


def _blocks(lines: list[list[str]]) -> list[list[list[str]]]:
    """Return the lines between each ``begin`` and ``end``."""
    starts = [i for i, line in enumerate(lines) if line[0] == "begin"]
    return [
        [line for line in lines[a + 1 : b] if line[0] != "end"]
        for a, b in pairwise([*starts, len(lines)])
    ]


def _motion(path: Path, skeleton: Skeleton) -> tuple[dict[str, NDArray[Any]], set[str]]:
    """Return the values of each bone ``(frames, degrees of freedom)``, and the header."""
    widths = {name: len(bone.dof) for name, bone in skeleton.bones.items() if bone.dof}
    widths["root"] = len(skeleton.order)
    columns: dict[str, list[list[float]]] = {name: [] for name in widths}
    frames, header = 0, set()
    for number, words in _lines(path):
        name, *rest = words
        if name.startswith(":"):
            header.add(name.lower())
            continue
        if not rest and name.isdigit():
            frames += 1
            continue
        try:
            numbers = [_number(word) for word in rest]
        except ValueError:
            numbers = []
        if name not in widths or len(numbers) != widths[name] or len(columns[name]) != frames - 1:
            raise DataError(
                f"read_amc: expected frames with {widths.get(name, 'no')} numbers of {name!r}, as "
                f"the skeleton has it, got {' '.join(words)!r} in line {number} of {path}"
            )
        columns[name].append(numbers)
    short = [name for name, rows in columns.items() if len(rows) != frames]
    if frames == 0 or short:
        what = f"frames without {short[0]!r}" if frames else "none"
        raise DataError(f"read_amc: expected frames of all bones in {path}, got {what}")
    return {name: numpy.array(rows) for name, rows in columns.items()}, header
