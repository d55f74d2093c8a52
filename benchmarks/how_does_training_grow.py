"""Measure how the training cost grows with samples, classes, features and processes.

    python benchmarks/how_does_training_grow.py [--device cuda] [--series samples ...]
        [--out grow.json] [--plot docs/grow.svg]

Each measurement is a separate ``spdnet train`` process on a file of generated matrices of full
rank: two epochs of the default recipe in float64, without validation. The script reports the time
of the second epoch, the time outside the epochs (startup, validation of the matrices, scores and
report), and the peak memory of the process. Unless the series varies them, the network is
93-70-50-30, with 3000 matrices of ten classes.

The series ``storage`` compares matrices in memory with matrices on disk, in float64 and float32,
for one and two processes.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy

from spdnet.data import StoreWriter

DIMS = {16: (16, 12, 8, 5), 32: (32, 24, 17, 10), 64: (64, 48, 34, 20), 93: (93, 70, 50, 30)}
DIMS |= {128: (128, 96, 69, 41), 192: (192, 144, 103, 62), 256: (256, 192, 138, 83)}
DIMS |= {400: (400, 200, 100, 50)}


@dataclass(frozen=True)
class Case:
    """One training run."""

    series: str
    x: float
    label: str = ""
    samples: int = 3000
    classes: int = 10
    n: int = 93
    processes: int = 1
    threads: int | None = None
    dtype: str = "float64"
    memory: bool = False  # keep the matrices in memory regardless of their size
    batch: int = 30


SERIES = {
    "samples": [Case("samples", N, samples=N) for N in (1000, 3000, 10_000, 30_000, 100_000)],
    "classes": [Case("classes", c, classes=c) for c in (2, 10, 100, 1000)],
    "dimension": [Case("dimension", n, n=n, samples=1500) for n in (16, 32, 64, 93, 128, 192, 256)],
    "processes": [
        Case(
            "processes",
            p,
            f"{p} process{'es' * (p > 1)}, {t} thread{'s' * (t > 1)} each",
            processes=p,
            threads=t,
        )
        for p, t in ((1, 1), (2, 1), (1, 2))
    ],
    "storage": [
        Case("storage", p, name, 12_000, processes=p, threads=1, dtype=dtype, memory=memory)
        for name, dtype, memory in (
            ("memory", "float64", True),
            ("disk, float64", "float64", False),
            ("disk, float32", "float32", False),
        )
        for p in (1, 2)
    ],
    "batch": [Case("batch", b, samples=20_000, batch=b) for b in (30, 128, 512, 2048)],
}


def write(path, case):
    """Write generated matrices; the classes differ in the scale of their features."""
    rng = numpy.random.default_rng(0)
    with StoreWriter(path, {"case": repr(case)}) as writer:
        for c in range(case.classes):
            left = case.samples // case.classes
            scale = 1 + rng.random((case.n, 1))
            while left:
                count = min(left, 200)
                A = rng.standard_normal((count, case.n, 2 * case.n)) * scale
                X = (A @ A.transpose(0, 2, 1) / (2 * case.n)).astype(case.dtype)
                writer.add(f"{c} {left}", X, y=f"class {c}")
                left -= count
        writer.finish({})


COMMAND = """
import sys
from spdnet.data.io import readers
readers.IN_MEMORY = {limit}
from spdnet.cli import app
app(prog_name="spdnet")
"""


def measure(case, device, folder):
    """Run one case and return its times and peak memory."""
    data, out = folder / f"{case.series}.npz", folder / "run"
    write(data, case)
    os.sync()  # finish writing before the measurement
    environment = dict(os.environ)
    if case.threads:
        environment["OMP_NUM_THREADS"] = str(case.threads)
    program = folder / "train.py"
    program.write_text(COMMAND.format(limit=2**60 if case.memory else 1))
    flags = f"--epochs 2 --val 0 --test 0.02 --no-baseline --device {device}".split()
    flags += ["--dims", ",".join(map(str, DIMS[case.n])), "--batch-size", str(case.batch)]
    begun = time.perf_counter()
    start = [sys.executable, program]
    if case.processes > 1:
        start = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        start += ["--nproc-per-node", str(case.processes), program]
    process = subprocess.Popen(
        [*start, "train", data, "--out", out, *flags], env=environment, stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"training failed with exit code {process.returncode}")
    total = time.perf_counter() - begun
    with (out / "metrics.csv").open() as file:
        epoch = float(list(csv.DictReader(file))[-1]["seconds"])
    size = data.stat().st_size
    for path in (data, *sorted(out.rglob("*"), reverse=True), out):
        path.rmdir() if path.is_dir() else path.unlink()
    trained = case.samples * 0.98
    return {
        "x": case.x,
        "label": case.label,
        "epoch": epoch,
        "per_second": trained / epoch,
        "beside": total - 2 * epoch,
        "peak": used.ru_maxrss / 1024,
        "bytes": size,
    }


def plot(found, path):
    """Plot the cost against the number of samples, classes, features and processes."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullLocator

    plt.rcParams["svg.fonttype"] = "none"
    names = {
        "samples": ("matrices of 93 x 93", "epoch", "s per epoch"),
        "classes": ("classes", "epoch", "s per epoch, 3000 matrices"),
        "dimension": ("features per matrix", "epoch", "s per epoch, 1500 matrices"),
    }
    figure, axes = plt.subplots(1, 4, figsize=(11, 2.9), layout="constrained")
    for ax, (series, (across, what, up)) in zip(axes, names.items(), strict=False):
        rows = found["series"][series]
        x = [row["x"] for row in rows]
        ax.plot(x, [row[what] for row in rows], marker="o", markersize=3)
        ax.set(xlabel=across, title=up, xscale="log")
        if series == "classes":  # nearly constant
            ax.set_ylim(0)
        else:
            ax.set_yscale("log")
            ax.yaxis.set_minor_locator(NullLocator())
        ax.set_xticks(x, [f"{tick:,.0f}" for tick in x], fontsize=7)
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter("{x:g}")
        ax.grid(alpha=0.3)
    rows = found["series"]["processes"]
    axes[3].bar(
        [row["label"].replace(", ", ",\n") for row in rows], [row["per_second"] for row in rows]
    )
    axes[3].tick_params(axis="x", labelsize=7)
    axes[3].set_title("matrices per second")
    for ax in axes:
        ax.title.set_fontsize(10)
        ax.spines[["top", "right"]].set_visible(False)
    figure.suptitle(found["machine"], fontsize=10)
    figure.savefig(path, metadata={"Date": None})


def main():
    """Measure, and write the results and the plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--series", nargs="*", default=[s for s in SERIES if s != "batch"])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path, help="write the plot to this file")
    parser.add_argument(
        "--read", type=Path, help="plot results written by --out instead of measuring"
    )
    parser.add_argument("--folder", type=Path, help="folder for the data (default: temporary)")
    arguments = parser.parse_args()
    if arguments.read:
        found = json.loads(arguments.read.read_text())
    else:
        import torch

        cuda = arguments.device == "cuda"
        where = torch.cuda.get_device_name() if cuda else f"{os.cpu_count()} cores"
        when = time.strftime("%Y-%m-%d")
        found = {"machine": f"{where}, torch {torch.__version__}, float64, {when}", "series": {}}
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            for series in arguments.series:
                rows = found["series"].setdefault(series, [])
                for case in SERIES[series]:
                    rows.append(measure(case, arguments.device, Path(folder)))
                    row = rows[-1]
                    print(
                        f"{series:>10} {row['x']:>8g} {row['label']:>26}: epoch {row['epoch']:7.2f}"
                        f" s, {row['per_second']:8.0f}/s, outside epochs {row['beside']:6.1f} s, "
                        f"peak {row['peak']:6.0f} MiB, file {row['bytes'] / 2**20:6.0f} MiB",
                        flush=True,
                    )
                    if arguments.out:
                        arguments.out.write_text(json.dumps(found, indent=1) + "\n")
    if arguments.plot:
        plot(found, arguments.plot)


if __name__ == "__main__":
    main()
