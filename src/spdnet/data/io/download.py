"""Resumable downloads.

pooch retries and moves the complete file into place, but it cannot resume a partial file.
"""

import json
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

from spdnet._files import atomic_write
from spdnet._lock import locked
from spdnet.data.errors import DataError

_RETRIES = 3  # after a dropped connection
_TIMEOUT = (20.0, 60.0)  # seconds to connect, and to wait for the next bytes
_BY_HAND = "download it manually and import it with spdnet data import"
_OnBytes = Callable[[int, int | None], None] | None


def download(url: str, folder: str | Path, *, on_bytes: _OnBytes = None) -> Path:
    """Download a file unless it is already in the folder.

    Incomplete data stay in ``NAME.part``; the same call resumes an interrupted download. Proxies
    are taken from the environment. ``on_bytes`` is called with the bytes received so far and the
    total, which is None if unknown.
    """
    import pooch
    import requests

    name, shown = _name_and_address(url)
    folder = Path(folder).absolute()
    file, part = folder / name, folder / f"{name}.part"
    if file.is_file():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    busy = f"download: expected no other download into {folder}, but one is running; wait for it"
    with locked(folder, busy):
        pooch.get_logger().setLevel("WARNING")  # no messages on stderr
        store = pooch.create(
            folder, "", registry={name: None}, urls={name: url}, retry_if_failed=_RETRIES
        )
        try:
            store.fetch(name, downloader=partial(_fetch, shown, part, on_bytes))
        except requests.RequestException as error:
            size = part.stat().st_size if part.exists() else 0
            raise OSError(
                f"download: expected all of {shown}, got {size} bytes, then {error}; the same "
                f"command resumes the download, or {_BY_HAND}"
            ) from error
        part.with_suffix(".part.json").unlink(missing_ok=True)
    return file


def _name_and_address(url: str) -> tuple[str, str]:
    """Return the file name, and the address without user name and password."""
    parts = urlsplit(url)
    shown = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"download: expected an http or https URL, got {shown!r}")
    name = unquote(parts.path.rpartition("/")[2])
    ours = name.endswith((".part", ".part.json"))
    if ours or not re.fullmatch(r"\w[\w .,+()-]{0,199}", name):
        raise ValueError(
            f"download: expected a URL that ends in a file name, got {name!r} in {shown!r}"
        )
    return name, shown


def _fetch(
    shown: str, part: Path, on_bytes: _OnBytes, url: str, draft: str, _: object = None
) -> None:
    """Download to ``part``, and resume if the file on the server is unchanged."""
    import requests

    # the empty file of pooch, which a killed process would leave behind
    Path(draft).unlink(missing_ok=True)
    record = part.with_suffix(".part.json")  # address, validator and size of the partial file
    address, validator, total = _read(record)
    done = part.stat().st_size if part.exists() and address == shown else 0
    headers = {"Accept-Encoding": "identity"}
    if done and validator:
        headers |= {"Range": f"bytes={done}-", "If-Range": validator}
    if not done or done != total:
        with requests.get(url, headers=headers, stream=True, timeout=_TIMEOUT) as response:
            status, etag = response.status_code, response.headers.get("ETag", "W/")
            same = response.headers.get("Last-Modified") if etag.startswith("W/") else etag
            if status == 200:
                length = response.headers.get("Content-Length", "")
                done, total = 0, int(length) if length.isdigit() else None
                part.open("wb").close()  # emptied before the record describes the new file
                atomic_write(record, json.dumps([shown, same, total]))
            elif status in (206, 416) and "Range" in headers:
                expected = rf"bytes {done}-\d+/({total or ''}|\*)"
                place = response.headers.get("Content-Range", "")
                # some servers ignore If-Range
                if not re.fullmatch(expected, place) or same not in (None, validator):
                    part.unlink()
                    return _fetch(shown, part, on_bytes, url, draft)
            else:
                raise OSError(
                    f"download: expected a file at {shown}, got status {status} {response.reason}; "
                    f"{_BY_HAND}"
                )
            response.raw.headers.pop("Content-Encoding", None)  # a .gz file stays compressed
            with part.open("ab") as file:
                for block in response.iter_content(1 << 16):
                    file.write(block)
                    done += len(block)
                    if on_bytes is not None:
                        on_bytes(done, total)
                file.flush()
                os.fsync(file.fileno())
        if total is not None and done != total:
            raise requests.ConnectionError(f"the end of the response, instead of {total} bytes")
    part.replace(draft)
    return None


def _read(record: Path) -> tuple[str, str | None, int | None]:
    try:
        address, validator, total = json.loads(record.read_bytes())
        return address, validator, total
    except FileNotFoundError:
        return "", None, None
    except (ValueError, TypeError, RecursionError) as error:
        raise DataError(
            f"download: expected a record of the download in {record}, got {error}; delete it"
        ) from error
