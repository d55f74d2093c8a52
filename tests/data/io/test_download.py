import gzip
import hashlib
import os
import resource
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from spdnet._lock import LockedError
from spdnet.data import DataError
from spdnet.data.io import download as module
from spdnet.data.io.download import download

CONTENT = np.random.default_rng(0).bytes(400_000)
OTHER = np.random.default_rng(1).bytes(400_000)


def sha(content):
    return hashlib.sha256(content).hexdigest()


class Site:
    """What the server has, what goes wrong there, and what it was asked for."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/some/folder/data.bin"
        self.content = CONTENT
        self.drops = []  # after how many bytes the next connections end
        self.gate = None  # an event to be waited for in the middle of a body
        self.ranges = "right"  # or ignored, refused, shifted, short, careless (of If-Range)
        self.validators = "etag"  # or date, weak, none
        self.status = 200
        self.extra_length = 0
        self.has_length = True
        self.headers = {}
        self.seen = []

    def validating_headers(self):
        number = sum(self.content[:100])
        date = f"Mon, 01 Jan 2024 00:{number // 60 % 60:02}:{number % 60:02} GMT"
        etag = f'"{sha(self.content)[:8]}"'
        return {
            "etag": {"ETag": etag},
            "date": {"Last-Modified": date},
            "weak": {"ETag": f"W/{etag}"},
            "none": {},
        }[self.validators]

    @property
    def asked(self):
        """The ranges that were asked for."""
        return [headers.get("Range") for _, headers in self.seen]


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *args):
        pass

    def do_GET(self):
        site = self.server.site
        site.seen.append((self.path, dict(self.headers)))
        if self.path.endswith("/moved.bin"):
            self.send_response(302)
            self.reply(b"", {"Location": "/elsewhere?token=1"})
            return
        if site.status != 200:
            self.send_response(site.status)
            self.reply(b"no such thing", {"Content-Length": 13, **site.headers})
            return
        headers, body = site.validating_headers() | site.headers, site.content
        wanted = self.headers.get("Range") if site.ranges != "ignored" else None
        same = self.headers.get("If-Range") in headers.values() or site.ranges == "careless"
        if wanted and site.ranges == "refused":
            self.send_response(416)
            self.reply(b"", {"Content-Length": 0})
            return
        if wanted and same:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            start -= 10 if site.ranges == "shifted" else 0
            end = start + 1000 if site.ranges == "short" else len(body)
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(body)}"
            body = body[start:end]
        self.send_response(206 if wanted and same else 200)
        if site.has_length:
            headers["Content-Length"] = len(body) + site.extra_length
        self.reply(body[: site.drops.pop(0)] if site.drops else body, headers)

    def reply(self, body, headers):
        for key, value in headers.items():
            self.send_header(key, str(value))
        self.end_headers()
        half = len(body) // 2
        self.wfile.write(body[:half])
        if self.server.site.gate is not None:
            self.wfile.flush()
            self.server.site.gate.wait(20)
        self.wfile.write(body[half:])


class Server(ThreadingHTTPServer):
    daemon_threads = False  # they are waited for

    def handle_error(self, request, client_address):
        assert isinstance(sys.exception(), ConnectionError)  # a client that went away


@pytest.fixture
def site(monkeypatch):
    monkeypatch.setattr(module, "_RETRIES", 2)
    monkeypatch.setattr("pooch.core.time.sleep", lambda seconds: None)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    with Server(("127.0.0.1", 0), Handler) as server:
        server.site = Site(server.server_address[1])
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.site
        finally:
            if server.site.gate is not None:
                server.site.gate.set()
            server.shutdown()
            thread.join()


def names(folder):
    return sorted(p.name for p in folder.iterdir() if p.name != ".lock")


def interrupted(site, folder, after=100_000):
    """A folder in which a download ended early."""
    site.drops = [after] * 3
    with pytest.raises(OSError, match="resumes the download"):
        download(site.url, folder)
    assert site.drops == []
    site.seen.clear()
    part = folder / "data.bin.part"
    assert 0 < part.stat().st_size < len(site.content)
    return part.stat().st_size


def test_a_file_is_fetched_once_and_recorded(site, tmp_path, capfd):
    folder = tmp_path / "new" / "folder"
    path = download(site.url, folder)
    assert path == folder / "data.bin"
    assert path.read_bytes() == CONTENT
    assert names(folder) == ["data.bin"]
    site.status = 404
    assert download(site.url, str(folder)) == path
    assert len(site.seen) == 1
    assert capfd.readouterr() == ("", "")


def test_importing_is_light():
    assert not {"pooch", "requests"} & set(vars(module))


@pytest.mark.parametrize("text", ["{", "[]", "3", '["a"]'])
def test_a_damaged_table(site, tmp_path, text):
    (tmp_path / "data.bin.part.json").write_text(text)
    with pytest.raises(DataError, match=r"record of the download in .*part.json, got .*; delete"):
        download(site.url, tmp_path)


@pytest.mark.parametrize("validators", ["etag", "date"])
def test_a_dropped_connection_is_taken_up_again(site, tmp_path, validators):
    site.validators = validators
    site.drops = [150_000, 100_000]
    assert download(site.url, tmp_path).read_bytes() == CONTENT
    starts = [int(asked.removeprefix("bytes=")[:-1]) for asked in site.asked[1:]]
    assert 0 < starts[0] <= 150_000 < starts[1] <= 250_000
    (validator,) = site.validating_headers().values()
    assert [headers.get("If-Range") for _, headers in site.seen] == [None, validator, validator]
    assert names(tmp_path) == ["data.bin"]


def test_the_next_call_continues(site, tmp_path):
    size = interrupted(site, tmp_path)
    assert download(site.url, tmp_path).read_bytes() == CONTENT
    assert site.asked == [f"bytes={size}-"]


@pytest.mark.parametrize(
    ("ranges", "validators", "content", "requests"),
    [
        ("ignored", "etag", CONTENT, 1),
        ("refused", "etag", CONTENT, 2),
        ("shifted", "etag", CONTENT, 2),
        ("right", "etag", OTHER, 1),
        ("right", "date", OTHER, 1),
        ("careless", "etag", OTHER, 2),
        ("careless", "etag", OTHER[:300_000], 2),
        ("right", "etag", OTHER[:50], 1),
        ("right", "weak", CONTENT, 1),
        ("right", "none", OTHER, 1),
    ],
)
def test_it_starts_again_where_it_cannot_continue(
    site, tmp_path, ranges, validators, content, requests
):
    site.validators = validators
    interrupted(site, tmp_path)
    site.ranges, site.content = ranges, content
    assert download(site.url, tmp_path).read_bytes() == content
    assert len(site.seen) == requests
    assert names(tmp_path) == ["data.bin"]


def test_a_part_of_another_address_is_not_continued(site, tmp_path):
    interrupted(site, tmp_path)
    download(site.url.replace("some", "other"), tmp_path)
    assert site.asked == [None]


def test_fewer_bytes_than_announced(site, tmp_path):
    site.extra_length = 1000
    with pytest.raises(OSError, match=r"got \d+ bytes, then .* same command resumes"):
        download(site.url, tmp_path)
    assert (tmp_path / "data.bin.part").stat().st_size > 0
    assert not (tmp_path / "data.bin").exists()
    site.extra_length = 0
    assert download(site.url, tmp_path).read_bytes() == CONTENT


def test_less_than_the_rest(site, tmp_path):
    size = interrupted(site, tmp_path)
    site.ranges = "short"
    with pytest.raises(
        OSError, match=f"got {size + 3000} bytes, .* instead of {len(CONTENT)} bytes"
    ):
        download(site.url, tmp_path)
    site.ranges = "right"
    assert download(site.url, tmp_path).read_bytes() == CONTENT


def test_a_killed_process_is_continued(site, tmp_path):
    site.gate = threading.Event()
    code = "import sys; from spdnet.data.io.download import download; download(*sys.argv[1:])"
    child = subprocess.Popen([sys.executable, "-c", code, site.url, str(tmp_path)])
    part = tmp_path / "data.bin.part"
    try:
        end = time.monotonic() + 60
        while not part.exists() or part.stat().st_size == 0:
            assert child.poll() is None
            assert time.monotonic() < end
            time.sleep(0.01)
    finally:
        child.kill()  # SIGKILL
        child.wait()
    assert names(tmp_path) == ["data.bin.part", "data.bin.part.json"]
    size = part.stat().st_size
    assert 0 < size < len(CONTENT)
    site.gate.set()
    assert download(site.url, tmp_path).read_bytes() == CONTENT
    assert site.asked == [None, f"bytes={size}-"]


def test_ctrl_c_loses_nothing(site, tmp_path):
    def stop(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(site.url, tmp_path, on_bytes=stop)
    assert download(site.url, tmp_path).read_bytes() == CONTENT
    assert site.asked[1].startswith("bytes=")
    assert names(tmp_path) == ["data.bin"]


def test_one_download_at_a_time(site, tmp_path):
    site.gate = threading.Event()
    first = threading.Thread(target=download, args=(site.url, tmp_path))
    first.start()
    try:
        while not (tmp_path / "data.bin.part").exists():
            assert first.is_alive()
            time.sleep(0.01)
        with pytest.raises(LockedError, match="one is running"):
            download(site.url, tmp_path)
    finally:
        site.gate.set()
        first.join()
    assert download(site.url, tmp_path).read_bytes() == CONTENT
    assert len(site.seen) == 1


def test_a_full_disk(site, tmp_path):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            download(site.url, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "data.bin.part").stat().st_size == 200_000
    assert download(site.url, tmp_path).read_bytes() == CONTENT
    assert site.asked == [None, "bytes=200000-"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_only_be_read(site, tmp_path):
    folder = tmp_path / "shared"
    path = download(site.url, folder)
    folder.chmod(0o500)
    try:
        assert download(site.url, folder) == path
        with pytest.raises(PermissionError):
            download(site.url.replace("data", "more"), folder)
    finally:
        folder.chmod(0o700)
    assert names(folder) == ["data.bin"]


def test_a_file_where_the_folder_should_be(site, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OSError, match="file"):
        download(site.url, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("status", [403, 404, 500])
def test_an_error_of_the_server(site, tmp_path, status):
    site.status = status
    message = f"{site.url}, got status {status} .*manually and import it with spdnet data import"
    with pytest.raises(OSError, match=message):
        download(site.url, tmp_path)
    assert names(tmp_path) == []


def test_an_error_of_the_server_keeps_the_part(site, tmp_path):
    interrupted(site, tmp_path)
    site.status = 503
    with pytest.raises(OSError, match="got status 503"):
        download(site.url, tmp_path)
    site.status = 200
    assert download(site.url, tmp_path).read_bytes() == CONTENT
    assert None not in site.asked


@pytest.mark.parametrize(
    "end",
    (
        " .. . %2e%2e a%2fb ..%2f..%2fb a%5cb %00 a%0ab .lock ?a=b.zip a.part "
        "a.part.json %20 C:a " + "a" * 201
    ).split(" "),
)
def test_hostile_names(tmp_path, end):
    with pytest.raises(ValueError, match="expected a URL that ends in a file name"):
        download(f"http://127.0.0.1:9/folder/{end}", tmp_path)
    assert names(tmp_path) == []


def test_names(site, tmp_path):
    path = download(site.url.replace("data.bin", "Größe%20(1)-b_2.tar.gz?x=/y#z"), tmp_path)
    assert path.name == "Größe (1)-b_2.tar.gz"


@pytest.mark.parametrize("url", ["ftp://host/a", "file:///etc/passwd", "data.bin", "http:///a"])
def test_other_schemes(tmp_path, url):
    with pytest.raises(ValueError, match="expected an http or https URL"):
        download(url, tmp_path)


@pytest.mark.parametrize("place", ["file:///etc/passwd", "ftp://127.0.0.1/data.bin"])
def test_redirects_to_other_schemes_are_refused(site, tmp_path, place):
    site.status, site.headers = 302, {"Location": place}
    with pytest.raises(OSError, match="No connection adapters"):
        download(site.url, tmp_path)
    assert names(tmp_path) == []


def test_a_redirect_keeps_the_name(site, tmp_path):
    path = download(site.url.replace("data.bin", "moved.bin"), tmp_path)
    assert path.name == "moved.bin"
    assert path.read_bytes() == CONTENT
    assert [path for path, _ in site.seen] == ["/some/folder/moved.bin", "/elsewhere?token=1"]


@pytest.mark.parametrize("has_length", [True, False])
def test_progress(site, tmp_path, has_length):
    site.has_length = has_length
    calls = []
    download(site.url, tmp_path, on_bytes=lambda done, total: calls.append((done, total)))
    done, totals = zip(*calls)
    assert len(done) > 2
    assert list(done) == sorted(set(done))
    assert done[-1] == len(CONTENT)
    assert set(totals) == {len(CONTENT) if has_length else None}


def test_progress_of_the_rest(site, tmp_path):
    size = interrupted(site, tmp_path)
    calls = []
    download(site.url, tmp_path, on_bytes=lambda done, total: calls.append((done, total)))
    assert calls[0][0] > size
    assert calls[-1] == (len(CONTENT), len(CONTENT))


def test_an_empty_file(site, tmp_path):
    site.content = b""
    assert download(site.url, tmp_path).read_bytes() == b""


def test_compressed_files_stay_compressed(site, tmp_path):
    site.content = gzip.compress(CONTENT)
    site.headers = {"Content-Encoding": "gzip"}  # as some servers say of a .tar.gz
    assert download(site.url, tmp_path).read_bytes() == site.content


def test_a_proxy_from_the_environment(site, tmp_path, monkeypatch):
    for name in ("NO_PROXY", "no_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", site.url.removesuffix("/some/folder/data.bin"))
    path = download("http://data.invalid/sets/data.bin", tmp_path)
    assert path.read_bytes() == CONTENT
    assert [path for path, _ in site.seen] == ["http://data.invalid/sets/data.bin"]


def test_passwords_are_used_and_not_told(site, tmp_path):
    url = site.url.replace("//", "//me:secret@")
    download(url, tmp_path)
    assert site.seen[0][1]["Authorization"].startswith("Basic ")
    site.status = 403
    with pytest.raises(OSError, match="403") as error:
        download(url, tmp_path / "other")
    assert "secret" not in str(error.value)
