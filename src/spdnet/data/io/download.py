"""Files from the web: fetched once, checked from then on, and continued after an interruption."""

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from spdnet._lock import locked
from spdnet.data.errors import DataError

_PAUSES = (1.0, 3.0, 9.0)  # seconds before each new attempt after a dropped connection
_TIMEOUT = (20.0, 60.0)  # seconds to connect, and to wait for the next bytes
_BY_HAND = "obtain it by hand and import it with spdnet data import"
_OnBytes = Callable[[int, int | None], None] | None


def download(
    url: str, folder: str | Path, *, sha256: str | None = None, on_bytes: _OnBytes = None
) -> Path:
    """Fetch a file, unless it is there.

    The checksum of what was fetched is kept in ``checksums.json`` of the folder, and the file is
    held to it from then on. While bytes arrive they are in ``NAME.part``; if the fetch is
    interrupted, the same call continues it. Proxies are taken from the environment.

    Parameters
    ----------
    url : str
        An http or https address whose path ends in the name of the file.
    folder : path
        Made if need be. One download at a time may write there.
    sha256 : str, optional
        What the checksum must be; without it, the one in ``checksums.json``, if any.
    on_bytes : callable, optional
        Called with how many bytes are there, and how many there will be if that is known.

    Raises
    ------
    DataError
        The checksum is another than expected: what came was not kept.
    OSError
        The file could not be fetched or written; what has arrived stays for the next call.
    """
    import pooch

    name, shown = _name_and_address(url)
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"download: expected 64 hexadecimal digits as sha256, got {sha256!r}")
    folder = Path(folder).absolute()
    file, part, table = folder / name, folder / f"{name}.part", folder / "checksums.json"

    def expected() -> str | None:
        return (sha256 or str(_read(table).get(name, {}).get("sha256", ""))).lower() or None

    def fetch(url: str, draft: str, _: object) -> None:
        Path(draft).unlink()  # pooch's, empty: a process that is killed leaves none behind
        _fetch(url, shown, part, on_bytes)
        found = pooch.file_hash(str(part))
        if known not in (None, found):
            part.unlink()
            what = "give another sha256" if sha256 else f"delete its entry in {table}"
            raise DataError(
                f"download: expected {name} with the sha256 {known}, got {found} from {shown}, "
                f"which was not kept; try again, or if the publisher has changed it, {what}"
            )
        entry = {"url": shown, "sha256": found, "bytes": part.stat().st_size}
        _write(table, {**_read(table), name: entry})
        try:
            os.link(part, draft)  # the part stays until the file has its name
        except OSError:  # a file system without links
            part.replace(draft)

    if file.is_file() and pooch.file_hash(str(file)) == expected():  # nothing needs be writable
        return file
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"download: expected no other download into {folder}, but one is under way; wait for it"
    with locked(folder, busy):
        known = expected()  # once more: another process may just have fetched it
        if known is None and file.exists():
            raise DataError(
                f"download: expected a checksum of {file} in {table.name}, got none; delete the "
                "file to fetch it again, or import it with spdnet data import"
            )
        pooch.get_logger().setLevel("WARNING")  # else it tells of each file on stderr
        pooch.retrieve(url, known, name, folder, downloader=fetch)
        part.unlink(missing_ok=True)
        part.with_suffix(".part.json").unlink(missing_ok=True)
    return file


def _name_and_address(url: str) -> tuple[str, str]:
    """The name of the file, and the url without a user's name and password."""
    parts = urlsplit(url)
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"download: expected an http or https url, got {shown!r}")
    name = unquote(parts.path.rpartition("/")[2])
    ours = name == "checksums.json" or name.endswith((".part", ".part.json"))
    if ours or not re.fullmatch(r"\w[\w .,+()-]{0,199}", name):
        raise ValueError(
            f"download: expected a url that ends in the name of a file, got {name!r} in {shown!r}"
        )
    return name, shown


def _fetch(url: str, shown: str, part: Path, on_bytes: _OnBytes) -> None:
    """Complete the part, in a few attempts."""
    import requests

    dropped = requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError
    for pause in (*_PAUSES, None):
        try:
            with requests.Session() as session:
                _attempt(session, url, shown, part, on_bytes)
            return
        except requests.RequestException as error:
            if pause is None or not isinstance(error, dropped):
                size = part.stat().st_size if part.exists() else 0
                raise OSError(
                    f"download: expected all of {shown}, got {size} bytes and then {error}; the "
                    f"same command continues from there, or {_BY_HAND}"
                ) from error
            time.sleep(pause)


def _attempt(session: Any, url: str, shown: str, part: Path, on_bytes: _OnBytes) -> None:
    """One request: for the rest where the server's file is still the same, else for all of it."""
    notes = part.with_suffix(".part.json")
    memory = _read(notes).get(shown, {})
    done = part.stat().st_size if part.exists() and memory else 0
    memory = {"total": None, "validator": None, **memory}
    if done and done == memory["total"]:
        return None
    headers = {"Accept-Encoding": "identity"}
    if done and memory["validator"]:
        headers |= {"Range": f"bytes={done}-", "If-Range": memory["validator"]}
    with session.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
        status, reason = response.status_code, response.reason
        if status == 200:
            length = response.headers.get("Content-Length", "")
            total = int(length) if length.isdigit() else None
            part.open("wb").close()  # emptied before it is said to be the new file's
            _write(notes, {shown: {"total": total, "validator": _validator(response)}})
            return _save(response, part, 0, total, on_bytes)
        if status == 206 and "Range" in headers and _continues(response, done, memory):
            return _save(response, part, done, memory["total"], on_bytes)
    if status in (206, 416) and "Range" in headers:
        part.unlink()  # of another file than the server has now
        return _attempt(session, url, shown, part, on_bytes)
    raise OSError(f"download: expected a file at {shown}, got status {status} {reason}; {_BY_HAND}")


def _save(response: Any, part: Path, done: int, total: int | None, on_bytes: _OnBytes) -> None:
    """Add the body to the part."""
    import requests

    response.raw.headers.pop("Content-Encoding", None)  # the bytes as they are: a .gz stays one
    with part.open("ab") as file:
        for block in response.iter_content(1 << 16):
            file.write(block)
            done += len(block)
            if on_bytes is not None:
                on_bytes(done, total)
        file.flush()
        os.fsync(file.fileno())
    if total is not None and done != total:
        raise requests.ConnectionError(f"the end, where {total} were announced")


def _validator(response: Any) -> str | None:
    """What tells this state of the file from others; a weak ETag does not."""
    etag = response.headers.get("ETag", "W/")
    return response.headers.get("Last-Modified") if etag.startswith("W/") else etag


def _continues(response: Any, done: int, memory: dict[str, Any]) -> bool:
    """Whether the body is the rest of the same file: not every server heeds If-Range."""
    place = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", response.headers.get("Content-Range", ""))
    same = _validator(response) in (None, memory["validator"])
    total = "*" if memory["total"] is None else str(memory["total"])
    return place is not None and same and int(place[1]) == done and place[2] in ("*", total)


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The entries of a JSON file; none if there is no file."""
    try:
        return {key: dict(entry) for key, entry in json.loads(path.read_bytes()).items()}
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise DataError(
            f"download: expected JSON with named entries in {path}, got {error}; mend or delete it"
        ) from error


def _write(path: Path, entries: dict[str, dict[str, Any]]) -> None:
    """Write a JSON file at one stroke."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        draft.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
