"""Nothing that the files of a run say becomes an element or an attribute of its report."""

import copy
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

import spdnet.runs.report
from spdnet.paper import Reproduction, ReproductionFolder, reproduce, write_reproduction
from spdnet.paper import report as paper_report
from spdnet.runs import Comparison, ComparisonFolder, RunFolder, Settings, compare, train
from spdnet.runs.report import figures, make_page
from tests.runs.test_train import file_of

EVIL = "\"'><script>alert(1)</script><img src=x onerror=\"alert(1)\"><svg onload='alert(1)'>"
SHORT = "<script>alert(1)</script>"  # fits into a figure
#: text with a meaning: without it there is no page
WORDS = ("scored", "kind", "measures")


class Checker(HTMLParser):
    """Fails on what a browser would run."""

    def __init__(self):
        super().__init__()
        self.text = ""

    def handle_starttag(self, tag, attributes):
        assert tag not in ("script", "img", "iframe", "object", "a"), tag
        assert not [name for name, _ in attributes if name.startswith("on") or name == "src"]

    def handle_data(self, data):
        self.text += data


def check(page):
    checker = Checker()
    checker.feed(page)
    return checker.text


def places(tree, path=()):
    """Every value of a tree; of the items of a list, which are alike, the first."""
    if isinstance(tree, (dict, list)) and tree:
        items = tree.items() if isinstance(tree, dict) else [(0, tree[0])]
        for key, value in items:
            yield from places(value, (*path, key))
    else:
        yield path


def changed(tree, path, value):
    """A copy with another value at a place."""
    tree = copy.deepcopy(tree)
    inner = tree
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return tree


def all_text_changed(tree, key=None):
    """A copy with another text wherever there is one."""
    if isinstance(tree, dict):
        return {k: all_text_changed(v, k) for k, v in tree.items()}
    if isinstance(tree, list):
        return [v if key in WORDS else all_text_changed(v) for v in tree]
    return SHORT if isinstance(tree, str) and key not in WORDS else tree


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """A folder of each kind."""
    place = tmp_path_factory.mktemp("written")
    data = file_of(place)
    for name, repeat in (("run", 1), ("repeats", 2)):
        settings = Settings(data=data, epochs=1, dims=(5, 4, 3), repeat=repeat, device="cpu")
        train(settings, RunFolder(place / name))
    compared = Comparison(data=data, methods=("mdm", "logistic"), repeats=2, device="cpu")
    compare(compared, ComparisonFolder(place / "comparison"))
    wanted = Reproduction(experiment="convergence", standin="digits", quick=True, device="cpu")
    reproduce(wanted, ReproductionFolder(place / "reproduction"))
    return place


def page_of(folder):
    if folder.name == "comparison":
        return make_page(ComparisonFolder(folder))
    if folder.name == "reproduction":
        return write_reproduction(ReproductionFolder(folder)).read_text(encoding="utf-8")
    return make_page(RunFolder(folder))


def page_or_error(folder):
    try:
        return page_of(folder), ""
    except (ValueError, TypeError) as error:
        return "", str(error)


@pytest.fixture(params=["run", "repeats", "comparison", "reproduction"])
def folder(written, tmp_path, request):
    """A copy, to be changed."""
    return shutil.copytree(written / request.param, tmp_path / request.param)


@pytest.fixture
def no_figures(monkeypatch):
    """Pages without figures, which refuse much and take long."""
    for name in ("confusion", "spectrum", "repeats"):
        monkeypatch.setattr(figures, name, lambda *_: "")
    monkeypatch.setattr(figures, "comparison", lambda *_: None)
    monkeypatch.setattr(paper_report, "_figures", lambda *_: {})
    monkeypatch.setattr(figures, "learning_curves", lambda *_: [])


@pytest.mark.parametrize("name", ["results.json", "environment.json"])
def test_every_value_is_escaped_or_refused(folder, no_figures, name):
    file = folder / name
    tree = json.loads(file.read_text())
    shown = set()
    for path in places(tree):
        file.write_text(json.dumps(changed(tree, path, EVIL)))
        page, error = page_or_error(folder)
        assert page or "expected" in error, path
        if "alert(1)" in check(page):
            shown.add(path[-1])
    expected = {
        "environment.json": {"command", "started", "torch"},
        "run": {"network", "data", "class"},
        "repeats": {"network", "data", "structure"},
        "comparison": {"title", "protocol", "data", "bad"},
        "reproduction": {"title", "what", "seed"},
    }
    assert expected["environment.json" if name == "environment.json" else folder.name] <= shown


def test_text_in_figures_is_escaped(folder):
    file = folder / "results.json"
    file.write_text(json.dumps(all_text_changed(json.loads(file.read_text()))))
    page = page_of(folder)
    assert check(page).count("alert(1)") > 3
    drawn = "".join(re.findall("<svg.*?</svg>", page, re.DOTALL))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in drawn
    assert {file.parent for file in folder.parent.rglob("*.svg")} <= {folder}


@pytest.mark.parametrize("kind", ["run", "repeats"])
def test_settings_are_escaped_or_refused(written, tmp_path, no_figures, kind):
    folder = shutil.copytree(written / kind, tmp_path / kind)
    file = folder / "settings.toml"
    lines = file.read_text().splitlines()
    shown = set()
    for i, line in enumerate(lines):
        name = line.split(" = ")[0]
        evil = f"{name} = {json.dumps(EVIL)}"
        file.write_text("\n".join([*lines[:i], evil, *lines[i + 1 :]]))
        page, error = page_or_error(folder)
        assert page or "expected" in error, name
        if "alert(1)" in check(page):
            shown.add(name)
    assert {"data", "device"} <= shown


def test_a_table_of_epochs_is_escaped_or_refused(written, tmp_path):
    folder = shutil.copytree(written / "run", tmp_path / "run")
    file = folder / "metrics.csv"
    head, row = file.read_text().splitlines()
    quoted = '"' + EVIL.replace('"', '""') + '"'
    file.write_text(f"{head},{quoted}\n{row},1\n")
    check(page_of(folder))
    for i, _ in enumerate(row.split(",")):
        cells = row.split(",")
        cells[i] = quoted
        file.write_text(f"{head}\n{','.join(cells)}\n")
        with pytest.raises(ValueError, match="expected a table of numbers"):
            page_of(folder)


def test_templates_trust_no_value():
    """Only a figure says of itself that it is HTML."""
    templates = list((Path(spdnet.runs.report.__file__).parent / "templates").glob("*.html"))
    assert len(templates) == 6
    for template in templates:
        assert not re.search(r"\|\s*safe|autoescape", template.read_text(encoding="utf-8"))
