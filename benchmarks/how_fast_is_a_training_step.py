"""How fast is a training step, beside the peers and beside the physical limit?

    python benchmarks/how_fast_is_a_training_step.py [--device cuda] [--out step.json]

Forward, backward and update of the paper's networks: SPDNet with RiemannianSGD, on CUDA also with
the step captured in graphs; spd_learn's modules with torch's SGD, where it is installed; and plain
torch, autograd through ``torch.linalg.eigh`` with the QR retraction by hand. Each has a process of
its own, and they take turns, so that a noisy machine is noisy for all; times are medians. The floor
is the time that the products of matrices alone would take at the measured rate of torch's product,
and reading the input at the measured rate of a copy. Memory is what a step takes at its peak beyond
what is there before it: of torch's allocator, so that the workspace of libraries is not in it.

The second table is the update alone, beside geoopt's RiemannianSGD where it is installed.

``clipped`` data are covariances of fewer frames than features, so that most eigenvalues lie below
the threshold; ``full`` data have none there. nan: not there, or it failed.
"""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import time
from contextlib import contextmanager
from itertools import accumulate, pairwise, product

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from spdnet import SPDNet
from spdnet.manifolds import stiefel
from spdnet.optim import RiemannianSGD
from spdnet.training import GraphedStep

CLASSES, EPS, LR = 7, 1e-4, 0.01
SHAPES = {"400": (400, 200, 100, 50), "93": (93, 70, 50, 30)}


def data(dims, batch, dtype, kind, device):
    """SPD matrices and labels."""
    generator = torch.Generator().manual_seed(0)
    n = dims[0]
    frames = n // 8 if kind == "clipped" else 3 * n
    A = torch.randn(batch, n, frames, generator=generator, dtype=torch.float64)
    X = A @ A.mT / frames + (1e-6 if kind == "clipped" else 1e-2) * torch.eye(n)
    y = torch.randint(CLASSES, (batch,), generator=generator)
    return X.to(device, dtype), y.to(device)


def ours(dims, dtype, device):
    """The package as the README uses it."""
    model = SPDNet(dims, CLASSES, eps=EPS, dtype=dtype, device=device)
    optimizer = RiemannianSGD(model.parameters(), lr=LR)
    return lambda X: model(X, check=False), optimizer


def graphed(dims, dtype, device):
    """The package on a GPU, the step captured in CUDA graphs."""
    if device != "cuda":
        raise ImportError("no graphs here")
    model = SPDNet(dims, CLASSES, eps=EPS, dtype=dtype, device=device)
    return GraphedStep(model, RiemannianSGD(model.parameters(), lr=LR))


def spd_learn(dims, dtype, device):
    """spd_learn's modules with their defaults."""
    from spd_learn.modules import BiMap, LogEig, ReEig

    layers = []
    for i in range(len(dims) - 1):
        layers += [ReEig(EPS)] if i else []
        layers.append(BiMap(dims[i], dims[i + 1]))
    layers += [LogEig(upper=False), nn.Flatten(), nn.Linear(dims[-1] ** 2, CLASSES, bias=False)]
    model = nn.Sequential(*layers).to(device, dtype)
    return model, torch.optim.SGD(model.parameters(), lr=LR)


class PlainStep:
    """What one writes in an afternoon: autograd through eigh, QR of each weight."""

    def __init__(self, dims, dtype, device):
        where = {"dtype": dtype, "device": device}
        pairs = pairwise(dims)
        self.weights = [
            torch.linalg.qr(torch.randn(i, o, **where))[0].requires_grad_() for i, o in pairs
        ]
        self.classifier = nn.Linear(dims[-1] ** 2, CLASSES, bias=False, **where)

    def __call__(self, X):
        """Logits."""
        for i, W in enumerate(self.weights):
            if i:
                s, U = torch.linalg.eigh(X)
                X = (U * s.clamp(min=EPS)[:, None]) @ U.mT
            X = W.mT @ X @ W
        s, U = torch.linalg.eigh(X)
        return self.classifier(((U * s.log()[:, None]) @ U.mT).flatten(1))

    def zero_grad(self):
        """Forget the gradients."""
        for p in (*self.weights, self.classifier.weight):
            p.grad = None

    @torch.no_grad()
    def step(self):
        """SGD and a QR decomposition."""
        self.classifier.weight.sub_(self.classifier.weight.grad, alpha=LR)
        for W in self.weights:
            G = stiefel.project_tangent(W, W.grad)
            Q, R = torch.linalg.qr(W - LR * G)
            W.copy_(Q * R.diagonal().sign())


def plain(dims, dtype, device):
    """Plain torch."""
    step = PlainStep(dims, dtype, device)
    return step, step


def our_update(dims, dtype, device):
    """The update of the network's weights alone."""
    model = SPDNet(dims, CLASSES, dtype=dtype, device=device)
    return list(model.parameters()), RiemannianSGD(model.parameters(), lr=LR)


def geoopt_update(dims, dtype, device):
    """The same with geoopt: its Stiefel manifold and its optimiser."""
    import geoopt

    where = {"dtype": dtype, "device": device}
    weights = [
        geoopt.ManifoldParameter(
            torch.linalg.qr(torch.randn(i, o, **where))[0], manifold=geoopt.EuclideanStiefel()
        )
        for i, o in pairwise(dims)
    ]
    weights.append(nn.Parameter(torch.randn(CLASSES, dims[-1] ** 2, **where)))
    return weights, geoopt.optim.RiemannianSGD(weights, lr=LR)


STEPS = {"spdnet": ours, "graphed": graphed, "spd_learn": spd_learn, "plain torch": plain}
UPDATES = {"spdnet": our_update, "geoopt": geoopt_update}
METHODS = {"step": STEPS, "update": UPDATES}

#: of the authors' code in MATLAB, run in Octave on 2 cores, once and not beside the others
QUOTE = {"400": "1650 to 1950", "93": "145"}


def make_step(method, dims, dtype, device, X, y):
    """One training step, or one update, as a function without arguments."""
    if method is graphed:
        step = method(dims, dtype, device)
        return lambda: step(X, y)
    if method in UPDATES.values():
        weights, optimizer = method(dims, dtype, device)
        for W in weights:
            W.grad = torch.randn_like(W)
        return optimizer.step
    model, optimizer = method(dims, dtype, device)

    def step():
        optimizer.zero_grad()
        cross_entropy(model(X), y).backward()
        optimizer.step()

    return step


def clock(function, device):
    """Seconds of one call."""
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


@contextmanager
def silence():
    """Nothing of what a library writes to standard error."""
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


def memory(function, device):
    """Bytes that one call needs at its peak beyond what there is already."""
    if device != "cuda":
        with silence(), torch.profiler.profile(profile_memory=True) as profile:
            function()
        events = profile.profiler.kineto_results.events()
        changes = [e for e in events if e.name() == "[memory]"]
        changes.sort(key=lambda e: e.start_ns())
        return max(accumulate(e.nbytes() for e in changes))
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    function()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def floor(dims, batch, dtype, device):
    """Seconds for the products of BiMaps and their gradients, and for reading the input."""
    flops = 0
    for i, (n, k) in enumerate(pairwise(dims)):
        forward = 2 * n * n * k + 2 * n * k * k
        weight = 2 * n * k * k  # one product with the X W that was kept
        inputs = 0 if i == 0 else 2 * n * k * k + 2 * n * n * k
        flops += batch * (forward + weight + inputs)
    n = dims[1]
    A = torch.randn(batch, n, n, dtype=dtype, device=device)
    product = min(clock(lambda: A @ A, device) for _ in range(5))
    X = torch.randn(batch, dims[0], dims[0], dtype=dtype, device=device)
    copy = min(clock(X.clone, device) for _ in range(5))
    return flops / (2 * batch * n**3 / product) + copy / 2


def serve(pipe, what, name, dims, batch, dtype, kind, device):
    """A process of its own for a method: its settings of threads are not those of another."""
    X, y = data(dims, batch, dtype, kind, device)
    before = torch.cuda.memory_allocated() if device == "cuda" else 0
    try:
        step = make_step(METHODS[what][name], dims, dtype, device, X, y)
        latest = [clock(step, device) for _ in range(2)][-1]
        if name == "graphed":  # what is allocated in a capture, and what is always there
            bytes_needed = torch.cuda.max_memory_allocated() - before
        else:
            bytes_needed = memory(step, device)
        pipe.send(bytes_needed)
        while pipe.recv() == "go":
            if latest < 1:
                step()  # the caches are those of another method
            times = [clock(step, device) for _ in range(3 if latest < 1 else 1)]
            latest = times[-1]
            pipe.send(times)
    except (ImportError, torch.linalg.LinAlgError) as error:  # autograd at repeated eigenvalues
        pipe.send(str(error))


def measure(what, dims, batch, dtype, kind, device, seconds):
    """Median seconds of each method; the processes take turns, one runs at a time."""
    context = multiprocessing.get_context("spawn")
    pipes, peak, times, failed, processes = {}, {}, {}, {}, []
    for name in METHODS[what]:
        pipes[name], theirs = context.Pipe()
        arguments = (theirs, what, name, dims, batch, dtype, kind, device)
        processes.append(context.Process(target=serve, args=arguments, daemon=True))
        processes[-1].start()
        times[name], peak[name] = [], pipes[name].recv()  # ready, and silent from now on
    started = time.perf_counter()
    rounds = 0
    while time.perf_counter() - started < seconds or rounds < 3:
        rounds += 1
        for name in METHODS[what]:
            if not isinstance(peak[name], str):
                pipes[name].send("go")
                found = pipes[name].recv()
                if isinstance(found, str):
                    peak[name] = found
                else:
                    times[name] += found
    for name, pipe in pipes.items():
        if isinstance(peak[name], str):
            failed[name] = peak.pop(name)
            times.pop(name)
        else:
            pipe.send("stop")
    for process in processes:
        process.join()
    return {
        "seconds": {name: statistics.median(t) for name, t in times.items()},
        "memory": peak,
        "floor": floor(dims, batch, dtype, device) if what == "step" else None,
        "failed": failed,
    }


def cell(value, scale, unit=""):
    """A number of a table."""
    return f"{'-' if value is None else f'{scale * value:.2f}{unit}':>13}"


def print_steps(cases, seconds, device):
    """The table of training steps; the rows of it for machines."""
    print(f"{'ms a step':38}" + "".join(f"{name:>13}" for name in STEPS) + f"{'floor':>13}")
    rows = []
    for shape, batch, dtype, kind in cases:
        dims = SHAPES[shape]
        found = measure("step", dims, batch, getattr(torch, dtype), kind, device, seconds)
        times, memory = found["seconds"], found["memory"]
        label = f"{'-'.join(map(str, dims))}, {batch}, {dtype}, {kind}"
        cells = [cell(times.get(name), 1e3) for name in STEPS] + [cell(found["floor"], 1e3)]
        ours_best = min(("graphed", "spdnet"), key=lambda name: times.get(name, float("inf")))
        ratio = None
        if "spd_learn" in times:
            ratio = times["spd_learn"] / times[ours_best]
        print(f"{label:38}" + "".join(cells) + (f"{ratio:8.1f}x" if ratio else ""), flush=True)
        print(f"{'    MiB at the peak':38}" + "".join(cell(memory.get(n), 2**-20) for n in STEPS))
        rows.append({"case": label, **found, "ratio": ratio})
    for shape, text in QUOTE.items():
        dims = "-".join(map(str, SHAPES[shape]))
        print(f"{dims}, 30: {text} ms, the authors' MATLAB code in Octave; quoted, 2 cores")
    return rows


def print_updates(shapes, dtypes, seconds, device):
    """The table of updates; the rows of it for machines."""
    print(f"\n{'ms an update':38}" + "".join(f"{name:>13}" for name in UPDATES))
    rows = []
    for shape, dtype in product(shapes, dtypes):
        dims = SHAPES[shape]
        found = measure("update", dims, 1, getattr(torch, dtype), "full", device, seconds)
        label = f"{'-'.join(map(str, dims))}, {dtype}"
        times = found["seconds"]
        print(f"{label:38}" + "".join(cell(times.get(name), 1e3) for name in UPDATES), flush=True)
        rows.append({"case": label, **found})
    return rows


def main():
    """Print the tables, and write them for machines."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shapes", default="400,93")
    parser.add_argument("--batches", default=None)
    parser.add_argument("--dtypes", default=None)
    parser.add_argument("--kinds", default="full,clipped")
    parser.add_argument("--without", default="", help="methods to leave out")
    parser.add_argument("--seconds", type=float, default=12.0, help="of measuring, for each row")
    parser.add_argument("--out")
    arguments = parser.parse_args()
    device, seconds = arguments.device, arguments.seconds
    shapes = arguments.shapes.split(",")
    batches = (arguments.batches or ("30" if device == "cpu" else "30,512")).split(",")
    dtypes = (arguments.dtypes or ("float64,float32" if device == "cpu" else "float32")).split(",")
    where = (
        torch.cuda.get_device_name() if device == "cuda" else f"{torch.get_num_threads()} threads"
    )
    machine = (
        f"{platform.machine()}, {where}, torch {torch.__version__}, {time.strftime('%Y-%m-%d')}"
    )
    print(machine)
    for name in filter(None, arguments.without.split(",")):
        STEPS.pop(name, None)
    cases = product(shapes, map(int, batches), dtypes, arguments.kinds.split(","))
    steps = print_steps(cases, seconds, device)
    updates = print_updates(shapes, dtypes, min(seconds, 2), device)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump({"machine": machine, "steps": steps, "updates": updates}, file, indent=1)


if __name__ == "__main__":
    main()
