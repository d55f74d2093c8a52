"""Layers of packages: each imports only lower layers, and importing spdnet is cheap."""

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import spdnet

SOURCE = Path(spdnet.__file__).parent
#: lowest layer first; a package may import itself and packages in lower layers
LAYERS = [
    {"_autograd", "_files", "_lock", "_precision", "_warnings"},
    {"_checks"},
    {"linalg"},
    {"_inputs"},
    {"manifolds", "covariance"},
    {"nn", "optim"},
    {"models"},
    {"options"},
    {"data"},
    {"testing", "training", "metrics"},
    {"adaptation"},
    {"estimator", "baselines", "plots"},
    {"runs"},
    {"paper"},
    {"cli"},
    {"__main__"},
]
#: third-party libraries, and the only packages that may import them (None: any)
ALLOWED = {
    "torch": None,
    "numpy": None,
    "scipy": {"linalg", "covariance", "data", "adaptation", "baselines"},
    "sklearn": {
        "_inputs",
        "covariance",
        "data",
        "metrics",
        "adaptation",
        "estimator",
        "baselines",
        "runs",
    },
    "filelock": {"_lock"},
    "jinja2": {"runs"},
    "markupsafe": {"runs", "paper"},
    "pooch": {"data", "paper"},
    "joblib": {"runs", "estimator", "training"},
    "threadpoolctl": {"baselines"},
    "requests": {"data"},
    "h5py": {"data"},
    "av": {"data"},
    "PIL": {"data"},
    "c3d": {"data"},
    "lightning_fabric": {"training"},
    "tomli_w": {"runs"},
    "matplotlib": {"plots", "runs", "paper"},
    "typer": {"cli"},
    "rich": {"cli"},
}


def package_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILES = sorted(p for p in SOURCE.rglob("*.py") if package_of(p) != "__init__")


def layer_of(package):
    return next(i for i, packages in enumerate(LAYERS) if package in packages)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_only_lower_layers(path):
    here = package_of(path)
    for name in imported(path):
        top, *rest = name.split(".")
        if top == "spdnet" and rest:
            there = rest[0]
            assert there == here or layer_of(there) < layer_of(here), f"{here} imports {name}"
        elif top not in sys.stdlib_module_names and top != "spdnet":
            assert top in ALLOWED, f"{here} imports {name}"
            assert ALLOWED[top] is None or here in ALLOWED[top], f"{here} imports {name}"


def test_every_package_has_a_layer():
    assert {package_of(p) for p in FILES} == set().union(*LAYERS)


def imported_at_load(body):
    """Yield the modules that a module imports when it is loaded, not in functions or for types."""
    for node in body:
        if isinstance(node, ast.ImportFrom):
            yield from ((node.module, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Try) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test)
        ):
            yield from imported_at_load(node.body)


def test_modules_have_no_import_cycle():
    names = {}
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        names[".".join(parts).removesuffix(".__init__")] = path
    graph = {
        name: {
            member if member in names else module
            for module, member in imported_at_load(ast.parse(path.read_text()).body)
            if module in names
        }
        for name, path in names.items()
    }
    order = list(TopologicalSorter(graph).static_order())  # raises CycleError
    assert set(order) == set(names)
    with pytest.raises(CycleError):
        list(TopologicalSorter(graph | {"spdnet.linalg.eigh": {"spdnet.nn"}}).static_order())


def test_import_skips_optional_and_heavy_modules():
    heavy = (
        "sklearn scipy matplotlib typer rich pooch requests pandas lightning_fabric torch._dynamo"
    )
    code = f"import sys, spdnet; print([m for m in {heavy.split()} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_covariance_import_skips_scikit_learn():
    code = (
        "import sys, spdnet.covariance as c; c.estimate([[1, 2, 4], [3, 1, 0]])\n"
        "print('sklearn' in sys.modules, c.Covariances.__name__, 'sklearn' in sys.modules)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", "Covariances", "True"]


def test_estimator_import_skips_file_readers():
    code = (
        "import sys, spdnet; spdnet.SPDNetClassifier\n"
        "print([m for m in sys.modules if m.startswith('spdnet.data.io')])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


@pytest.mark.slow
def test_train_works_without_fcntl(tmp_path):
    """Simulate Windows, where filelock provides the only file locks."""
    code = (
        "import sys; sys.modules['fcntl'] = None\n"
        "import spdnet; spdnet.SPDNetClassifier\n"
        "from spdnet.runs import RunFolder, Settings, train\n"
        "settings = Settings(data='digits', epochs=1, dims=(17, 4), baseline=False, device='cpu')\n"
        f"train(settings, RunFolder({str(tmp_path / 'run')!r}))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "run" / "results.json").exists()


def test_public_names_have_docstrings():
    for module in (spdnet.linalg, spdnet.manifolds, spdnet.nn, spdnet.optim, spdnet.models):
        for name in module.__all__:
            assert getattr(module, name).__doc__, f"{module.__name__}.{name}"
    assert spdnet.__version__
