"""Measure how the cost of a training step grows with the matrix size and the batch size.

    python benchmarks/how_does_the_cost_grow.py [--device cuda] [--out cost.json] [--plot cost.svg]

Time the forward pass, backward pass and update in float32: SPDNet with RiemannianSGD (with CUDA
graphs on a GPU), and spd_learn if it is installed. The first series has matrices of 16 to 512
features in batches of 30, and two BiMaps that each halve the size. The second series has the
network 93-70-50-30 and batches of 1 to 4096. The data have full rank, and nothing is clipped. A
series ends after a step that takes more than four seconds. The plots reveal sizes at which the cost
jumps.
"""

import argparse
import json
import time

import torch
from how_fast_is_a_training_step import STEPS, clock, data, make_step

SIZES = (16, 24, 32, 33, 48, 64, 65, 93, 128, 129, 192, 256, 257, 384, 512)
BATCHES = (1, 2, 4, 8, 16, 30, 32, 64, 128, 256, 512, 1024, 2048, 4096)
LIMIT = 4.0  # a series ends after a step that takes longer, in seconds


def seconds_of(name, dims, batch, device):
    """Return the median time of a few steps, or None if the method is not installed."""
    X, y = data(dims, batch, torch.float32, "full", device)
    try:
        step = make_step(STEPS[name], dims, torch.float32, device, X, y)
    except ImportError:
        return None
    for _ in range(2):
        first = clock(step, device)
    n = max(1, min(30, int(1 / first)))
    return sorted(clock(step, device) for _ in range(n))[n // 2]


def measure(name, cases, device):
    """Return pairs of size and seconds, up to the time limit."""
    found = []
    for size, dims, batch in cases:
        seconds = seconds_of(name, dims, batch, device)
        if seconds is None:
            break
        found.append((size, seconds))
        print(f"{name:>10}  {'-'.join(map(str, dims)):>14}, {batch:4d}: {1e3 * seconds:10.2f} ms")
        if seconds > LIMIT:
            break
    return found


def plot(found, title, path):
    """Plot the time against matrix size and batch size on logarithmic axes."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullLocator

    plt.rcParams["svg.fonttype"] = "none"
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained", sharey=True)
    labels = {"size": "features per matrix, batches of 30", "batch": "batch size"}
    ticks = {"size": [2**i for i in range(4, 10)], "batch": [4**i for i in range(7)]}
    for ax, (key, lines) in zip(axes, found.items(), strict=True):
        for name, points in lines.items():
            if points:
                sizes, seconds = zip(*points, strict=True)
                label = "spdnet" if name == "graphed" else name
                ax.loglog(sizes, [1e3 * t for t in seconds], marker="o", markersize=3, label=label)
        ax.set_xlabel(labels[key])
        ax.set_xticks(ticks[key], [str(tick) for tick in ticks[key]])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter("{x:g}")
        ax.grid(alpha=0.3)
        ax.legend(frameon=False)
    axes[0].set_ylabel("milliseconds per step")
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, metadata={"Date": None})


def main():
    """Measure, and write the results and the plot."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out")
    parser.add_argument("--plot", help="write the plot to this file")
    parser.add_argument("--read", help="plot results written by --out instead of measuring")
    arguments = parser.parse_args()
    if arguments.read:
        with open(arguments.read) as file:
            found = json.load(file)
        plot(found, found.pop("machine"), arguments.plot)
        return
    device = arguments.device
    ours = "graphed" if device == "cuda" else "spdnet"
    where = torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} cores"
    title = f"{where}, torch {torch.__version__}, float32, {time.strftime('%Y-%m-%d')}"
    sizes = [(n, (n, n // 2, n // 4), 30) for n in SIZES]
    batches = [(b, (93, 70, 50, 30), b) for b in BATCHES]
    found = {
        key: {name: measure(name, cases, device) for name in (ours, "spd_learn")}
        for key, cases in (("size", sizes), ("batch", batches))
    }
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump({"machine": title, **found}, file, indent=1)
    if arguments.plot:
        plot(found, title, arguments.plot)


if __name__ == "__main__":
    main()
