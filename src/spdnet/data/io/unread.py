"""What lies beside the data and is not read: said, so that nothing is lost in silence."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from spdnet.data.errors import DataError
from spdnet.data.io.files import text
from spdnet.data.io.tables import SUFFIXES as TABLES

#: one matrix or sequence a file; the first kinds that there are, are read
KINDS = ((".npy", ".mat"), (".csv", ".tsv"), (".txt",))
#: as messages name them
READABLE = ".npy, .mat, .csv, .tsv or .txt"
_HELPERS = (".asf",)  # skeletons, which motions name
_SHOWN = 4

Parts = tuple[str, ...]


def is_hidden(parts: Parts) -> bool:
    """Whether a file or one of its folders is not meant to be seen."""
    return "__MACOSX" in parts or any(part.startswith(".") for part in parts)


def of_one_kind(files: Iterable[Parts]) -> list[Parts]:
    """The files of the first kind that there is, in order.

    Tables of text count where there are no arrays: beside these they are often notes. A text file
    that lies in no folder counts where no other does.
    """
    seen = [parts for parts in files if not is_hidden(parts)]
    for suffixes in KINDS:
        found = sorted(parts for parts in seen if parts[-1].lower().endswith(suffixes))
        in_folders = [parts for parts in found if len(parts) > 1]
        if found:
            return in_folders if in_folders and suffixes[0] in TABLES else found
    return []


def kinds_of(files: Iterable[Parts]) -> str:
    """How many files of which suffix, such as ``20 .xyz files``."""
    count = Counter(_suffix(parts[-1]) for parts in files if not is_hidden(parts))
    order = sorted(count.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{n} {suffix or 'unnamed'} file{'s' * (n > 1)}" for suffix, n in order[:_SHOWN]]
    more = ["others"] if len(count) > _SHOWN else []
    return ", ".join(shown + more) or "none"


def on_the_rest(
    who: str, files: Iterable[Parts], used: Collection[Parts], classes: Iterable[Parts]
) -> list[str]:
    """Notes on files that are not read.

    Parameters
    ----------
    who : str
        For messages.
    files : iterable of tuple of str
        All there are: the folders and the name of each.
    used : collection of tuple of str
        Those that are read, or folders of which all is.
    classes : iterable of tuple of str
        The folders that are classes.

    Raises
    ------
    DataError
        A folder beside those of the classes holds files, and none that is read.
    """
    known, whole = set(classes), set(used)
    taken = {parts[:n] for parts in whole for n in range(1, len(parts) + 1)}
    above = {folder[:-1] for folder in known}
    rest = [
        parts
        for parts in files
        if not is_hidden(parts)
        and not _is_used(parts, whole)
        and not parts[-1].lower().endswith(_HELPERS)
    ]
    lost: dict[Parts, list[Parts]] = {}
    for parts in rest:
        for place in above:
            folder = parts[: len(place) + 1]
            if len(parts) > len(folder) and folder[:-1] == place and folder not in taken:
                lost.setdefault(folder, []).append(parts)
    for folder, inside in sorted(lost.items()):
        raise DataError(
            f"{who}: expected files that can be read in every folder of a class, got "
            f"{kinds_of(inside)} in {text('/'.join(folder))}; {_way_out(inside, whole)}"
        )
    suffixes = tuple(suffix for kind in KINDS for suffix in kind)
    worth = [
        parts
        for parts in rest
        if parts[-1].lower().endswith(suffixes)
        or any(parts[:n] in known for n in range(1, len(parts)))
    ]
    if not worth:
        return []
    return [f"not read: {kinds_of(worth)}, such as {text('/'.join(min(worth)))}"]


def _is_used(parts: Parts, used: set[Parts]) -> bool:
    return parts in used or parts[:-1] in used


def _way_out(inside: Sequence[Parts], used: Iterable[Parts]) -> str:
    """What to do about files that are not read."""
    if of_one_kind(inside):
        others = sorted({_suffix(parts[-1]) for parts in used})
        return f"save all as files of one kind, such as {others[0] or '.npy'}, in folders alike"
    return f"save them as {READABLE}, or move the folder away"


def _suffix(name: str) -> str:
    """In small letters, and no longer than a suffix is."""
    _, point, end = name.rpartition(".")
    return text(f".{end.lower()}") if point and len(end) <= 8 else ""
