"""Project files are consistent with each other."""

import re
import shutil
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOW = ROOT / ".github/workflows/ci.yml"


def commands(target):
    """Return the commands of a Makefile target if no virtual environment exists."""
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    dry = ["make", "--no-print-directory", "--dry-run", "VENV=no-such-folder", target]
    return subprocess.run(dry, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_make_train_installs_no_development_tools():
    for target, extra in (("train", False), ("test", True), ("lint", True), ("docs", True)):
        steps = commands(target)
        torch, package = steps.index(" torch\n"), steps.index("--editable .")
        assert torch < package  # the pinned build of torch is installed first
        assert all("--constraint constraints.txt" in s for s in steps.splitlines() if "pip" in s)
        assert ('--editable ".[dev]"' in steps) == extra


def test_make_train_is_the_command_of_the_documentation():
    command = "spdnet train digits-small\n"
    assert commands("train").endswith(command)
    for name in ("docs/start.md", "src/spdnet/options/commands.py"):
        assert command in (ROOT / name).read_text()


def loaded(path):
    yaml = pytest.importorskip("yaml")  # installed with the development tools
    return yaml.safe_load(path.read_text())


def test_workflow_covers_supported_versions_and_systems():
    workflow = loaded(WORKFLOW)
    assert workflow["permissions"] == {"contents": "read"}
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    classifiers = PYPROJECT["project"]["classifiers"]
    versions = [c.split(" :: ")[-1] for c in classifiers if "Python :: 3." in c]
    assert matrix["python"] == versions
    assert PYPROJECT["project"]["requires-python"] == f">={versions[0]}"
    oldest, newest = matrix["torch"]
    assert f"torch>={oldest.removesuffix('.0')}" in PYPROJECT["project"]["dependencies"]
    assert f"torch=={newest}" in (ROOT / "constraints.txt").read_text().splitlines()
    systems = {job["runs-on"] for job in workflow["jobs"].values()}
    systems |= {case["os"] for case in matrix["include"]}
    assert {"ubuntu-latest", "macos-latest", "windows-latest"} <= systems


def test_workflow_paths_exist():
    for name in re.findall(r"tests/[\w./]+", WORKFLOW.read_text()):
        assert (ROOT / name).exists(), name


def test_issue_templates_and_hooks_are_valid():
    templates = [loaded(path) for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")]
    forms = [form for form in templates if "body" in form]
    assert len(forms) == 2
    assert all(form["name"] and form["description"] for form in forms)
    (local,) = loaded(ROOT / ".pre-commit-config.yaml")["repos"]
    assert local["repo"] == "local"  # no download
    tools = {hook["entry"].split()[0] for hook in local["hooks"] if hook["language"] == "system"}
    development = {
        re.split(r"\W", name)[0] for name in PYPROJECT["project"]["optional-dependencies"]["dev"]
    }
    assert tools <= development


def test_wheel_contains_all_package_data():
    package = ROOT / "src" / "spdnet"
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["spdnet"]
    files = [path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()]
    others = [name for name in files if not name.endswith((".py", ".pyc"))]
    assert "py.typed" in others
    assert [name for name in others if not any(fnmatch(name, p) for p in patterns)] == []


def test_citation_has_the_package_version():
    version = PYPROJECT["project"]["version"]
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text().splitlines()
