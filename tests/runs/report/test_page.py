import json
import re
import shutil
import subprocess
from html import escape, unescape
from html.parser import HTMLParser

import numpy as np
import pytest

from spdnet.runs import RunFolder, Settings, train
from spdnet.runs.report import make_page, write_report
from tests.runs.test_train import file_of

EVIL = '<img src=x onerror="document.body.dataset.hacked=1">'
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run with awkward class names: markup, mathematics, a long one."""
    place = tmp_path_factory.mktemp("report")
    with np.load(file_of(place)) as file:
        names = {"walk": EVIL, "run": "$x^2$ & co", "jump": "long " * 12}
        np.savez(place / "odd.npz", X=file["X"], y=np.array([names[str(c)] for c in file["y"]]))
    run = RunFolder(place / "run <1>")
    settings = Settings(data=str(place / "odd.npz"), epochs=3, dims=(5, 4, 3))
    train(settings, run, on_finished=write_report)
    return run


class Checker(HTMLParser):
    """Every element is closed, and nothing comes from elsewhere."""

    VOID = ("meta", "br", "img", "link")

    def __init__(self):
        super().__init__()
        self.open, self.seen, self.ids = [], [], []

    def handle_starttag(self, tag, attributes):
        self.seen.append(tag)
        values = dict(attributes)
        self.ids += [values["id"]] if "id" in values else []
        for name in ("src", "href", "xlink:href"):
            assert values.get(name, "#").startswith("#") or values[name].startswith("data:image/")
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in self.VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_whole_and_needs_nothing(folder):
    page = folder.report_file.read_text()
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert len(checker.ids) == len(set(checker.ids))
    assert not {"img", "script", "link", "iframe"} & set(checker.seen)
    assert checker.seen.count("svg") == 2 + 1 + 6  # curves, confusion, spectra
    assert "@import" not in page
    assert not re.findall(r"url\((?!#|data:)", page)


def test_it_says_what_was_found(folder):
    found, page = folder.results(), make_page(folder)
    assert f"{100 * found.parts['test'].accuracy:.2f} %" in page
    assert f"{100 * found.baseline.accuracy['test']:.2f} %" in page
    for text in (
        "Learning curves",
        "Confusion",
        "Classes",
        "Spectra, layer by layer",
        "ReEig 1 raised",
        "Orthonormality",
        "Settings",
        "weight_decay",
        "Environment",
        "matrices per second",
        "SPDNet: 5 → 4 → 3",
    ):
        assert text in page
    for row in found.per_class:
        assert row.label in (EVIL, "$x^2$ & co", "long " * 12)


def test_names_are_escaped(folder):
    page = make_page(folder)
    assert EVIL not in page
    assert "&lt;img src=x" in page
    assert "$x^2$ &amp; co" in page
    assert "run &lt;1&gt;" in page


def test_repeats_and_what_is_missing(tmp_path):
    run = RunFolder(tmp_path / "run")
    settings = Settings(data=file_of(tmp_path), epochs=2, repeat=2, baseline=False)
    train(settings, run, on_finished=write_report)
    page = run.report_file.read_text()
    assert "2 repeats" in page
    assert "±" in page
    assert "log-Euclidean logistic" not in page
    assert (run.of_seed(1).report_file).is_file()
    run.results_file.unlink()
    with pytest.raises(FileNotFoundError, match="resume the run with spdnet train --resume"):
        make_page(run)
    run.results_file.write_text("{")
    with pytest.raises(ValueError, match="it is damaged"):
        make_page(run)


def test_many_classes_have_no_numbers_in_the_picture(tmp_path):
    n = 120
    y = np.arange(n) % 40
    X = np.eye(3) * (1 + y + 0.01 * np.arange(n))[:, None, None]
    np.savez(tmp_path / "a.npz", X=X, y=y)
    run = RunFolder(tmp_path / "run")
    train(Settings(data=str(tmp_path / "a.npz"), epochs=1, baseline=False), run)
    page = make_page(run)
    confusion = page[
        page.index("Confusion matrix") : page.index("</svg>", page.index("Confusion m"))
    ]
    numbers = set(re.findall(r">(\d+)</text>", confusion))
    assert len(numbers) < 15  # those of the axes alone
    assert all(f"<td>{c}</td>" in page for c in range(40))


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium")
@pytest.mark.parametrize("width", [1200, 360])
def test_in_a_real_browser(folder, tmp_path, width):
    """Nothing runs, nothing is fetched, nothing sticks out."""
    probe = """<script>addEventListener("load", () => {
      const wide = [...document.querySelectorAll("body *")].filter(
        (e) => !e.closest(".scroll") && e.getBoundingClientRect().right > innerWidth + 1);
      document.body.dataset.found = JSON.stringify({
        hacked: document.body.dataset.hacked ?? null,
        overflow: document.documentElement.scrollWidth - innerWidth,
        wide: wide.map((e) => e.tagName),
        letters: Math.min(...[...document.querySelectorAll("svg text")].map((e) => {
          const m = e.getScreenCTM();
          return parseFloat(getComputedStyle(e).fontSize) * Math.hypot(m.a, m.b);
        })),
        inner: innerWidth,
        fetched: performance.getEntriesByType("resource").length,
        pictures: [...document.querySelectorAll("svg")].map((e) => e.getBoundingClientRect().width),
      });
    });</script>"""
    page = tmp_path / "page.html"
    content = folder.report_file.read_text().replace("</body>", probe + "</body>")
    # a window cannot be as narrow as a phone, a frame can
    frame = f'<iframe srcdoc="{escape(content)}" style="width:{width}px;height:9000px;border:0">'
    relay = """<script>setTimeout(() => { document.body.dataset.found =
      document.querySelector("iframe").contentDocument.body.dataset.found; }, 500);</script>"""
    page.write_text(f"<body>{frame}</iframe>{relay}</body>")
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
        "--window-size=1300,2000",
        "--virtual-time-budget=3000",
        "--dump-dom",
        page.as_uri(),
    ]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    match = re.search(r'<body data-found="([^"]*)"', run.stdout)
    found = json.loads(unescape(match[1]))
    assert found["inner"] == width
    assert found["hacked"] is None
    assert found["letters"] > 7
    assert found["overflow"] <= 0
    assert found["wide"] == []
    assert found["fetched"] == 0
    assert len(found["pictures"]) == 9
    assert min(found["pictures"]) > 200
