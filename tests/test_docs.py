"""Code blocks of the README and the documentation run, and links have valid targets.

The blocks of a page run in order in one empty folder: ``python`` blocks share a namespace, ``sh``
blocks run command by command. A comment before a block excludes it and states the reason:
``<!-- not run: needs a GPU -->``.
"""

import inspect
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from docs.blocks import FENCE, NOT_RUN, Session, blocks, commands

import spdnet
from spdnet.manifolds import Metric
from tests.cases import random_spd

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
GENERATED = ("_made", "gallery")  # by the documentation build
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if not set(GENERATED) & set(page.relative_to(ROOT).parts)]
MARKDOWN = [*PAGES, *sorted(set(ROOT.glob("*.md")) - {README})]
MARKDOWN += [ROOT / "benchmarks/NOTES.md", ROOT / "examples/README.md"]
#: pages that other tests run
ELSEWHERE = ("docs/interoperability.md",)
LANGUAGES = ("python", "sh", "toml", "text", "bibtex", "")
LINK = re.compile(r"(?<!`)!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def on(page):
    return blocks(page.read_text())


def runs(page):
    return [block for block in on(page) if not block.skipped]


#: pages whose Python blocks train for several seconds
TRAINS_LONG = ("docs/guide/images.md",)


def is_slow(page):
    """Return whether the page runs spdnet or torchrun commands."""
    shell = [block for block in runs(page) if block.language == "sh"]
    ours = {"spdnet", "torchrun"}
    return any(words[0] in ours for block in shell for words in commands(block))


def built(page):
    """Return the files that ``spdnet data build`` commands of the page write."""
    shell = [words for b in runs(page) if b.language == "sh" for words in commands(b)]
    return [words[4] for words in shell if words[:3] == ["spdnet", "data", "build"]]


def marked(page):
    marks = [pytest.mark.slow] if is_slow(page) or name_of(page) in TRAINS_LONG else []
    return pytest.param(page, id=name_of(page), marks=marks)


every_page = pytest.mark.parametrize("page", PAGES, ids=name_of)
RUN_HERE = [page for page in PAGES if runs(page) and name_of(page) not in ELSEWHERE]


@every_page
def test_excluded_blocks_state_a_reason(page):
    text = page.read_text()
    markers = list(NOT_RUN.finditer(text))
    for marker in markers:
        assert re.fullmatch(r": \S.{5,}\s", marker["reason"]), marker[0]
        assert FENCE.match(text, text.index("\n", marker.end()) + 1), f"no block below {marker[0]}"
    assert sum(block.skipped for block in on(page)) == len(markers)


@every_page
def test_blocks_declare_a_known_language(page):
    for block in on(page):
        assert block.language in LANGUAGES, f"line {block.line}: {block.language}"


@pytest.mark.parametrize("page", [marked(page) for page in RUN_HERE])
def test_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # processes have another working directory
    if "guide" not in page.parts:  # guides create their own files
        make_files(tmp_path, 93 if page == README else 8)
        for name in built(page):
            (tmp_path / name).unlink(missing_ok=True)
    session = Session(others=check_other_command)
    said = [(block.language, session.run(block)) for block in runs(page)]
    if page == README:
        check_readme(tmp_path, "".join(text for language, text in said if language == "python"))


def check_readme(place, printed):
    """Check the results that the README states."""
    assert float(re.search(r"loss ([\d.]+)", printed)[1]) < 0.3
    assert float(re.search(r"accuracy ([\d.]+)", printed)[1]) > 0.97
    assert (place / "runs/recordings/report.html").is_file()
    assert (place / "runs/recordings-2/seed-9/report.html").is_file()
    assert len((place / "predictions.csv").read_text().splitlines()) == 10


def check_other_command(words):
    """Check that the target or extra named by a make or pip command exists."""
    program, *rest = words
    if program == "make":
        assert re.search(rf"^{rest[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), words
    else:
        assert words[:2] == ["pip", "install"], f"neither run nor marked: {words}"
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        for name in re.findall(r"\[([\w,]+)\]", rest[-1]):
            assert set(name.split(",")) <= set(extras["optional-dependencies"]), words


def make_files(place, n):
    """Write small files under the names that pages use: two classes with different variance."""
    y = np.arange(24) % 2
    scale = np.where(y, 3, 1)[:, None, None]
    X = random_spd(24, n).numpy() * np.where(y, 1.5, 1)[:, None, None]
    signals = np.random.default_rng(0).normal(size=(24, 8, 50)) * scale
    np.savez(place / "recordings.npz", X=X, y=y)
    np.savez(place / "later.npz", X=X[:9], y=y[:9])
    np.savez(place / "new.npz", X=X[:9])
    np.savez(place / "eeg.npz", X=signals, y=y, groups=np.arange(24) // 6)
    for i, kind in enumerate(y):
        for folder, values in (("recordings", X[i]), ("motions", signals[i].T)):
            file = place / folder / f"class{kind}" / f"{i}.npy"
            file.parent.mkdir(parents=True, exist_ok=True)
            np.save(file, values)


def anchors(page):
    """Yield the anchors that code hosts and the documentation build generate for headings."""
    text = FENCE.sub("", page.read_text())
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.strip().lower())
        yield plain.replace(" ", "-")


@pytest.mark.parametrize("page", MARKDOWN, ids=name_of)
def test_links_have_valid_targets(page):
    text = re.sub(r"`[^`\n]+`", "", FENCE.sub("", page.read_text()))
    for match in LINK.finditer(text):
        target, _, anchor = match["target"].partition("#")
        if "://" in target or set(GENERATED) & set(Path(target).parts):
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), match[0]
        if anchor:
            assert anchor in anchors(file), match[0]


@pytest.mark.parametrize("page", MARKDOWN, ids=name_of)
def test_named_scripts_exist(page):
    for name in re.findall(r"\b((?:benchmarks|examples)/\w+\.py)\b", page.read_text()):
        assert (ROOT / name).is_file(), name


def public():
    """Yield name and object of every public class and function except exceptions."""
    modules = [m for m in (getattr(spdnet, name) for name in spdnet.__all__) if inspect.ismodule(m)]
    for module in modules:
        for name in getattr(module, "__all__", ()):
            thing = getattr(module, name)
            if inspect.ismodule(thing):
                own = (v for v in vars(thing).values() if is_public(v, thing.__name__))
                yield from ((f"{module.__name__}.{name}.{v.__name__}", v) for v in own)
            elif isinstance(thing, Metric):
                own = (v for v in vars(type(thing)).values() if is_public(v, "spdnet"))
                yield from ((f"{module.__name__}.{name}.{v.__name__}", v) for v in own)
            elif is_public(thing, "spdnet"):
                yield f"{module.__name__}.{name}", thing


def is_public(thing, home):
    if not callable(thing) or not getattr(thing, "__module__", "").startswith(home):
        return False
    error = inspect.isclass(thing) and issubclass(thing, Exception)
    return not error and not thing.__name__.startswith("_")


def test_every_public_name_has_an_example():
    things = dict(public())
    assert len(things) > 150
    assert [name for name, thing in things.items() if not has_example(name, thing)] == []


def has_example(name, thing):
    """Return whether the docstring, or that of an overridden metric method, has an example."""
    where = [thing]
    if isinstance(metric := getattr(spdnet.manifolds, name.split(".")[2], None), Metric):
        where = [getattr(kind, thing.__name__, None) for kind in type(metric).__mro__]
    return any(">>> " in (one.__doc__ or "") for one in where)
