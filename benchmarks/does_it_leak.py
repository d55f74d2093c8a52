"""Measure whether a process that trains repeatedly leaks memory.

    python benchmarks/does_it_leak.py --minutes 60 --out soak.json --plot docs/soak.svg

One process trains four networks in a loop, with checkpoints, baseline and report: a plain network
on the digits, a network with normalization, TSMNet on signals, and a network trained from disk.
After each round, the script records the resident memory and the number of open files and threads.
The growth is the slope of a line fitted to the second half of the rounds, because the first rounds
fill caches.
"""

import argparse
import gc
import json
import os
import resource
import tempfile
import threading
import time
from pathlib import Path

import numpy
import torch

from spdnet.data import StoreWriter
from spdnet.data.io import readers
from spdnet.runs import RunFolder, Settings, train
from spdnet.runs.report import write_report


def counts():
    """Return the resident memory in MiB and the number of open files and threads."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss": pages * resource.getpagesize() / 2**20,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


def make_data(folder):
    """Write a file of signals of three classes, and a file of matrices to train from disk."""
    rng = numpy.random.default_rng(0)
    y = numpy.arange(240) % 3
    signals = rng.standard_normal((240, 8, 200)) * (1 + y[:, None, None] * rng.random((8, 1)))
    numpy.savez(folder / "signals.npz", X=signals, y=y, groups=y[rng.permutation(240)])
    with StoreWriter(folder / "stored.npz", {"soak": 1}) as writer:
        for i in range(600):
            A = rng.standard_normal((1, 30, 60)) * (1 + (i % 3) * rng.random((30, 1)))
            writer.add(f"s{i}", A @ A.mT / 60, y=f"class {i % 3}", groups=i, split=None)
        writer.finish({})
    readers.IN_MEMORY = 1  # keep the matrices on disk


def rounds(folder):
    """Return the settings of one round."""
    common = {"device": "cpu", "epochs": 3}
    return {
        "digits": Settings(data="digits", **common),
        "normalized": Settings(data="digits", norm="affine_invariant", **common),
        "signals": Settings(data=str(folder / "signals.npz"), model="tsmnet", **common),
        "stored": Settings(data=str(folder / "stored.npz"), **common),
    }


def growth(rows, what):
    """Return the growth per round in the second half of the rounds, and its standard error."""
    half = rows[len(rows) // 2 :]
    x = numpy.arange(len(half))
    (slope, _), covariance = numpy.polyfit(x, [row[what] for row in half], 1, cov=True)
    return float(slope), float(covariance[0, 0] ** 0.5)


def plot(rows, path):
    """Plot memory and open files against time."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(1, 2, figsize=(9, 2.8), layout="constrained")
    minutes = [row["seconds"] / 60 for row in rows]
    for axis, what, name in zip(
        axes, ("rss", "files"), ("resident memory, MiB", "open files"), strict=True
    ):
        axis.plot(minutes, [row[what] for row in rows], lw=1)
        axis.set_ylim(0)
        axis.set_xlabel("minutes")
        axis.set_title(name, loc="left", fontsize=10)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def main():
    """Train in a loop and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--plot", type=Path)
    arguments = parser.parse_args()
    begun, rows = time.monotonic(), []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        make_data(folder)
        while time.monotonic() < begun + 60 * arguments.minutes:
            for name, settings in rounds(folder).items():
                with tempfile.TemporaryDirectory(dir=folder) as run:
                    train(settings, RunFolder(Path(run) / name), on_finished=write_report)
            gc.collect()
            rows.append({"seconds": time.monotonic() - begun, **counts()})
            last = rows[-1]
            print(
                f"{last['seconds'] / 60:6.1f} min  round {len(rows):4d}  {last['rss']:7.1f} MiB  "
                f"{last['files']} files  {last['threads']} threads",
                flush=True,
            )
            if arguments.out:
                arguments.out.write_text(json.dumps({"torch": torch.__version__, "rounds": rows}))
    print(f"{4 * len(rows)} training runs in {rows[-1]['seconds'] / 60:.0f} minutes")
    for what, unit in (("rss", "MiB"), ("files", "files"), ("threads", "threads")):
        slope, error = growth(rows, what)
        first, last = rows[len(rows) // 2][what], rows[-1][what]
        print(
            f"{unit}: {first:.1f} halfway, {last:.1f} at the end, {slope:+.4f} ± {error:.4f} "
            "per round"
        )
    if arguments.plot:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()
