"""The examples: each runs by itself, without a warning, and ends in a picture."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from matplotlib import pyplot

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))
#: seconds, not tens of seconds
QUICK = ("plot_3_skeleton_actions", "plot_6_custom_layer", "plot_7_faces_verification")
#: runs a script and asks for what it drew; the folder it runs in has to stay empty
RUNNER = """
import os, runpy, sys
from matplotlib import pyplot
runpy.run_path(sys.argv[1], run_name="__main__")
figures = [pyplot.figure(n) for n in pyplot.get_fignums()]
assert figures, "no figure"
for figure in figures:
    figure.canvas.draw()
    assert all(ax.has_data() for ax in figure.axes), "empty axes"
assert not os.listdir(), "files were left"
"""


def test_there_are_few():
    assert 1 <= len(EXAMPLES) <= 8
    assert set(QUICK) <= {path.stem for path in EXAMPLES}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_they_are_short_and_explained(path):
    """A title with its underline, as the gallery wants it, prose between the cells, a picture."""
    text = path.read_text()
    lines = text.splitlines()
    assert len(lines) <= 120
    title, underline = ast.get_docstring(ast.parse(text)).splitlines()[:2]
    assert underline == "=" * len(title)
    cells = [i for i, line in enumerate(lines) if line == "# %%"]
    assert len(cells) >= 3
    assert all(lines[i + 1].startswith("# ") for i in cells)
    assert lines[-1] == "plt.show()"


def check_output(text):
    assert "log-Euclidean" in text  # what everyone has to beat
    assert "nan" not in text


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_the_quick_ones_run(name, tmp_path, monkeypatch, capsys):
    """In this process: to start one takes longer than the script."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DISPLAY", "")
    monkeypatch.setattr(sys, "argv", ["-c", str(EXAMPLES[0].with_name(f"{name}.py"))])
    pyplot.close("all")
    pyplot.switch_backend("agg")
    try:
        exec(RUNNER, {})
    finally:
        pyplot.close("all")
    check_output(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_they_run_by_themselves(path, tmp_path):
    place = tmp_path / "here"
    place.mkdir()
    command = [sys.executable, "-W", "error", "-W", "ignore:`torch.jit:DeprecationWarning"]
    run = subprocess.run(
        [*command, "-c", RUNNER, str(path)],
        cwd=place,
        env={**os.environ, "MPLBACKEND": "agg", "OMP_NUM_THREADS": "1", "DISPLAY": ""},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    check_output(run.stdout)
