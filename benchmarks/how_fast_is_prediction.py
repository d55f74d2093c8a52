"""Time the prediction of one matrix and of many, in several forms of a network.

    python benchmarks/how_fast_is_prediction.py [--seconds 3] [--many 4096] [--device cpu]
    python benchmarks/how_fast_is_prediction.py --memory [--many 1024]

Networks: SPDNet 93-70-50-30 and 400-200-100-50, and the four networks of a default PortfolioNet, in
float32, in evaluation mode, without gradients. Forms: ``eager`` is ``model(X)`` with its default
checks, ``exported`` a program of ``torch.export``, ``compiled`` the same program compiled by
AOTInductor (it needs a C++ compiler), ``spd_learn`` the network of that library. Latency is the
median time for one matrix, throughput the number of matrices per second in batches of 256. A dash
marks a form that is not available.

With ``--memory``, each network predicts all matrices in a process of its own, as the estimators and
``spdnet predict`` do: the peak of the resident memory above that after the prediction of one
matrix, without the input, and matrices per second of wall and of processor time.
"""

import argparse
import ctypes
import math
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch
from how_fast_is_a_training_step import CLASSES, data, spd_learn

from spdnet import SPDNet
from spdnet.models import PortfolioNet
from spdnet.training.evaluation import run_in_chunks

SHAPES = ((93, 70, 50, 30), (400, 200, 100, 50))
BATCH = 256


def spdnet(dims, X):
    """Build SPDNet as in the README."""
    return SPDNet(dims, CLASSES, dtype=X.dtype, device=X.device)


def portfolio(dims, X):
    """Build a PortfolioNet with four members, fitted to the data."""
    members = ("log", "all", "sqrt-kernel", "norm-dropout-50")
    model = PortfolioNet(
        dims[0], CLASSES, members=members, n_samples=len(X), dtype=X.dtype, device=X.device
    )
    model.fit_buffers(X)
    return model


def exported(model, X):
    """Export a network for any batch size."""
    shapes = ({0: torch.export.Dim("batch", min=1, max=4 * BATCH)},)
    return torch.export.export(model, (X[:8],), dynamic_shapes=shapes)


def compiled(model, X):
    """Compile the exported network ahead of time."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.pt2")
        torch._inductor.aoti_compile_and_package(exported(model, X), package_path=path)
        return torch._inductor.aoti_load_package(path)


def median_time(function, seconds, device):
    """Return the median time of a call."""
    times, end = [], time.perf_counter() + seconds
    for _ in range(3):
        function()
    while time.perf_counter() < end or len(times) < 3:
        started = time.perf_counter()
        function()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def forms(dims, make, X):
    """Return functions that build the forms of a network, by name."""
    model = make(dims, X).eval()
    found = {
        "eager": lambda: model,
        "exported": lambda: exported(model, X).module(),
        "compiled": lambda: compiled(model, X),
    }
    if make is spdnet:
        found["spd_learn"] = lambda: spd_learn(dims, X.dtype, X.device.type)[0].eval()
    return found


@torch.no_grad()
def measure(run, X, many, seconds):
    """Return the latency in milliseconds, and the throughput in matrices per second."""
    device, parts = X.device.type, many.split(BATCH)
    latency = median_time(lambda: run(X[:1]), seconds, device)
    total = median_time(lambda: [run(part) for part in parts], seconds, device)
    return 1e3 * latency, len(many) / total


@torch.no_grad()
def measure_memory(dims, name, dtype, count):
    """Return the peak memory in MiB and the matrices per second of wall and processor time."""
    X, _ = data(dims, 512, dtype, "full", "cpu")
    model = {"SPDNet": spdnet, "PortfolioNet": portfolio}[name](dims, X).eval()
    X = X.repeat(math.ceil(count / len(X)), 1, 1)[:count]
    run_in_chunks(model, X[:1], check=False)
    before = reset_peak()
    wall, cpu = time.perf_counter(), time.process_time()
    run_in_chunks(model, X, check=False)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return (peak() - before) / 1024, len(X) / wall, len(X) / cpu


def peak():
    """Return the peak of the resident memory in kB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def reset_peak():
    """Make the present memory the peak, and return it: building a network takes more (Linux)."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def print_memory(count):
    """Print a line for each network and dtype, each measured in a new process."""
    print(f"{'network':38}{'peak, MiB':>12}{'matrices/s':>12}{'per CPU second':>16}")
    for dims in SHAPES:
        for name in ("SPDNet", "PortfolioNet"):
            for dtype in (torch.float32, torch.float64):
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:
                    found = pool.submit(measure_memory, dims, name, dtype, count).result()
                label = f"{name} {dims[0]}, {str(dtype).removeprefix('torch.')}"
                print(f"{label:38}{found[0]:12.0f}{found[1]:12.0f}{found[2]:16.0f}", flush=True)


def main():
    """Print a line for each network and form."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--many", type=int, default=4096)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--memory", action="store_true")
    arguments = parser.parse_args()
    if arguments.memory:
        print_memory(arguments.many)
        return
    print(f"{'network':28}{'form':12}{'one matrix, ms':>16}{'matrices/s':>14}")
    for dims in SHAPES:
        X, _ = data(dims, 512, torch.float32, "full", arguments.device)
        many = X.repeat(math.ceil(arguments.many / len(X)), 1, 1)[: arguments.many]
        names = {"-".join(map(str, dims)): spdnet, f"PortfolioNet, {dims[0]}": portfolio}
        for name, make in names.items():
            for form, build in forms(dims, make, X).items():
                line = f"{name:28}{form:12}"
                try:
                    latency, rate = measure(build(), X, many, arguments.seconds)
                    print(f"{line}{latency:16.2f}{rate:14.0f}", flush=True)
                except (ImportError, RuntimeError) as error:
                    print(f"{line}{'-':>16}{'-':>14}  {type(error).__name__}", flush=True)


if __name__ == "__main__":
    main()
