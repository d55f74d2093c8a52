"""Does a process that trains again and again grow?

    python benchmarks/does_it_leak.py --minutes 60 --out soak.json --plot docs/soak.svg

One process trains in a loop, each time to the end with checkpoints, the linear baseline and the
report: a plain network on the digits, one with normalisation, TSMNet on signals, and one whose
matrices are read from disk. After each round of the four, memory, open files and threads are
counted. The first rounds fill caches; the growth is that of a line through the second half of the
rounds, with its standard error.
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
    """Of this process: MiB resident, open files, threads."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss": pages * resource.getpagesize() / 2**20,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": threading.active_count(),
    }


def make_data(folder):
    """Signals of three classes, and matrices in a store that is larger than what is kept."""
    rng = numpy.random.default_rng(0)
    y = numpy.arange(240) % 3
    signals = rng.standard_normal((240, 8, 200)) * (1 + y[:, None, None] * rng.random((8, 1)))
    numpy.savez(folder / "signals.npz", X=signals, y=y, groups=y[rng.permutation(240)])
    with StoreWriter(folder / "stored.npz", {"soak": 1}) as writer:
        for i in range(600):
            A = rng.standard_normal((1, 30, 60)) * (1 + (i % 3) * rng.random((30, 1)))
            writer.add(f"s{i}", A @ A.mT / 60, y=f"class {i % 3}", groups=i, split=None)
        writer.finish({})
    readers.IN_MEMORY = 1  # so that the matrices stay on disk


def rounds(folder):
    """The settings of one round."""
    common = {"device": "cpu", "epochs": 3}
    return {
        "digits": Settings(data="digits", **common),
        "normalised": Settings(data="digits", norm="affine_invariant", **common),
        "signals": Settings(data=str(folder / "signals.npz"), model="tsmnet", **common),
        "stored": Settings(data=str(folder / "stored.npz"), **common),
    }


def growth(rows, what):
    """Per round, and its standard error, in the second half."""
    half = rows[len(rows) // 2 :]
    x = numpy.arange(len(half))
    (slope, _), covariance = numpy.polyfit(x, [row[what] for row in half], 1, cov=True)
    return float(slope), float(covariance[0, 0] ** 0.5)


def plot(rows, path):
    """Memory and open files against time."""
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
    """Read the command line, train, and count."""
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
    print(f"{4 * len(rows)} trainings in {rows[-1]['seconds'] / 60:.0f} minutes")
    for what, unit in (("rss", "MiB"), ("files", "files"), ("threads", "threads")):
        slope, error = growth(rows, what)
        first, last = rows[len(rows) // 2][what], rows[-1][what]
        print(
            f"{unit}: {first:.1f} at half time, {last:.1f} at the end, {slope:+.4f} ± {error:.4f} "
            "a round"
        )
    if arguments.plot:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()
