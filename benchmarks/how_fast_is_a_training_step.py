"""Compare the time of a training step with other libraries and with a lower bound.

    python benchmarks/how_fast_is_a_training_step.py [--device cuda] [--out step.json]

The first table is the time of the forward pass, backward pass and update of the paper's networks:
SPDNet with RiemannianSGD, on a GPU also with CUDA graphs; spd_learn with torch's SGD, if installed;
and plain torch (autograd through ``torch.linalg.eigh``, hand-written QR retraction). Each method
has its own process, and the processes take turns of at least a tenth of a second, so that noise
affects all of them equally; times are medians. The lower bound is the time of the matrix products
at the measured rate of torch or of ``spdnet``, plus reading the input at the measured rate of a
copy. Memory is the peak of a step in torch's allocator, minus the memory allocated before the step;
it excludes the workspaces of native libraries.

``spdnet`` is the loop of the README, ``model(X)`` with its default checks.

The second table is the time of the update alone, compared with geoopt's RiemannianSGD if installed.
The third, with ``--layers``, is the time of a step with other layers in float32: batch
normalization after each BiMap, a threshold in percent (spd_learn has none, and clips nothing), a
hidden layer, and ten networks at once (spd_learn: one network, ten steps).

``clipped`` data are covariance matrices of fewer frames than features, with most eigenvalues below
the ReEig threshold; ``full`` data have no eigenvalue below it. A dash marks a method that is not
installed or failed.
"""

import argparse
import json
import multiprocessing
import os
import platform
import statistics
import time
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, pairwise, product

import torch
from torch import nn

from spdnet import SPDNet
from spdnet.linalg.products import right_multiply
from spdnet.manifolds import stiefel
from spdnet.models import Ensemble
from spdnet.optim import RiemannianSGD
from spdnet.training.evaluation import mean_loss
from spdnet.training.graphs import GraphedStep

CLASSES, EPS, LR = 7, 1e-4, 0.01
SHAPES = {"400": (400, 200, 100, 50), "93": (93, 70, 50, 30)}


def data(dims, batch, dtype, kind, device):
    """Return SPD matrices and labels."""
    generator = torch.Generator().manual_seed(0)
    n = dims[0]
    frames = n // 8 if kind == "clipped" else 3 * n
    A = torch.randn(batch, n, frames, generator=generator, dtype=torch.float64)
    X = A @ A.mT / frames + (1e-6 if kind == "clipped" else 1e-2) * torch.eye(n)
    y = torch.randint(CLASSES, (batch,), generator=generator)
    return X.to(device, dtype), y.to(device)


def ours(dims, dtype, device, *, networks=1, **settings):
    """Build SPDNet as in the README, or an ensemble."""
    settings = {"eps": EPS, "dtype": dtype, "device": device, **settings}
    model = SPDNet(dims, CLASSES, **settings)
    if networks > 1:
        model = Ensemble(SPDNet(dims, CLASSES, **settings) for _ in range(networks))
    optimizer = RiemannianSGD(model.parameters(), lr=LR)
    return model, optimizer


def graphed(dims, dtype, device, **settings):
    """Build SPDNet with CUDA graphs."""
    if device != "cuda":
        raise ImportError("CUDA graphs need a GPU")
    return GraphedStep(*ours(dims, dtype, device, **settings))


def spd_learn(dims, dtype, device, *, norm=None, head="linear", networks=1, **_):
    """Build the network of spd_learn with its defaults."""
    from spd_learn.modules import BiMap, LogEig, ReEig, SPDBatchNormLie, SPDBatchNormMean

    lie = {"log_euclidean": "LEM", "log_cholesky": "LCM", "affine_invariant": "AIM"}
    layers = []
    for i in range(len(dims) - 1):
        layers += [ReEig(EPS)] if i else []
        layers.append(BiMap(dims[i], dims[i + 1]))
        if norm == "brooks":
            layers.append(SPDBatchNormMean(dims[i + 1]))
        elif norm is not None:
            layers.append(SPDBatchNormLie(dims[i + 1], metric=lie[norm]))
    layers += [LogEig(upper=False), nn.Flatten()]
    n = dims[-1] ** 2
    if head == "mlp":
        layers += [nn.BatchNorm1d(n), nn.Linear(n, 256), nn.BatchNorm1d(256), nn.ReLU()]
        layers += [nn.Dropout(), nn.Linear(256, CLASSES)]
    else:
        layers.append(nn.Linear(n, CLASSES, bias=False))
    model = nn.Sequential(*layers).to(device, dtype)
    return model, torch.optim.SGD(model.parameters(), lr=LR)


class PlainStep:
    """Straightforward implementation: autograd through eigh, and QR of each weight."""

    def __init__(self, dims, dtype, device):
        where = {"dtype": dtype, "device": device}
        pairs = pairwise(dims)
        self.weights = [
            torch.linalg.qr(torch.randn(i, o, **where))[0].requires_grad_() for i, o in pairs
        ]
        self.classifier = nn.Linear(dims[-1] ** 2, CLASSES, bias=False, **where)

    def __call__(self, X):
        """Compute the logits."""
        for i, W in enumerate(self.weights):
            if i:
                s, U = torch.linalg.eigh(X)
                X = (U * s.clamp(min=EPS)[:, None]) @ U.mT
            X = W.mT @ X @ W
        s, U = torch.linalg.eigh(X)
        return self.classifier(((U * s.log()[:, None]) @ U.mT).flatten(1))

    def zero_grad(self):
        """Reset the gradients."""
        for p in (*self.weights, self.classifier.weight):
            p.grad = None

    @torch.no_grad()
    def step(self):
        """Take an SGD step with a QR retraction."""
        self.classifier.weight.sub_(self.classifier.weight.grad, alpha=LR)
        for W in self.weights:
            G = stiefel.project_tangent(W, W.grad)
            Q, R = torch.linalg.qr(W - LR * G)
            W.copy_(Q * R.diagonal().sign())


def plain(dims, dtype, device):
    """Build the network in plain torch."""
    step = PlainStep(dims, dtype, device)
    return step, step


def our_update(dims, dtype, device):
    """Return the weights of SPDNet and their optimizer."""
    model = SPDNet(dims, CLASSES, dtype=dtype, device=device)
    return list(model.parameters()), RiemannianSGD(model.parameters(), lr=LR)


def geoopt_update(dims, dtype, device):
    """Return the same weights with geoopt's manifold and optimizer."""
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
LAYERS = {
    "plain": {},
    **{f"norm {name}": {"norm": name} for name in ("log_euclidean", "log_cholesky")},
    **{f"norm {name}": {"norm": name} for name in ("affine_invariant", "brooks")},
    "eps 10%": {"eps": "10%"},
    "head mlp": {"head": "mlp"},
    "ten networks": {"networks": 10},
}
METHODS = {
    "step": STEPS,
    "update": UPDATES,
    **{
        name: {
            "spdnet": partial(ours, **settings),
            "graphed": partial(graphed, **settings),
            "spd_learn": partial(spd_learn, **settings),
        }
        for name, settings in LAYERS.items()
    },
}

#: milliseconds of the authors' MATLAB code in Octave on 2 cores, measured once in a separate run
QUOTE = {"400": "1650 to 1950", "93": "145"}


def make_step(method, dims, dtype, device, X, y):
    """Return a function that runs one training step or one update."""
    if getattr(method, "func", method) is graphed:
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
        mean_loss(model(X), y).backward()
        optimizer.step()

    return step


def clock(function, device):
    """Return the time of one call in seconds."""
    if device == "cuda":
        torch.cuda.synchronize()
    started = time.perf_counter()
    function()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started


@contextmanager
def silence():
    """Suppress standard error, including that of native libraries."""
    before, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)


def memory(function, device):
    """Return the peak memory of one call in bytes, minus the memory allocated before it."""
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
    """Return a lower bound: the matrix products of BiMaps and gradients, and reading the input."""
    flops = 0
    for i, (n, k) in enumerate(pairwise(dims)):
        forward = 2 * n * n * k + 2 * n * k * k
        weight = 2 * n * k * k  # one product with the saved X W
        inputs = 0 if i == 0 else 2 * n * k * k + 2 * n * n * k
        flops += batch * (forward + weight + inputs)
    n = dims[1]
    A = torch.randn(batch, n, n, dtype=dtype, device=device)
    with torch.no_grad():
        products = (lambda: A @ A), (lambda: right_multiply(A, A[0]))
        product = min(clock(f, device) for f in products for _ in range(5))
    X = torch.randn(batch, dims[0], dims[0], dtype=dtype, device=device)
    copy = min(clock(X.clone, device) for _ in range(5))
    return flops / (2 * batch * n**3 / product) + copy / 2


def serve(pipe, what, name, dims, batch, dtype, kind, device):
    """Measure one method in its own process, unaffected by the thread settings of others."""
    X, y = data(dims, batch, dtype, kind, device)
    before = torch.cuda.memory_allocated() if device == "cuda" else 0
    try:
        step = make_step(METHODS[what][name], dims, dtype, device, X, y)
        latest = [clock(step, device) for _ in range(2)][-1]
        if name == "graphed":  # includes the memory of the captured graphs
            bytes_needed = torch.cuda.max_memory_allocated() - before
        else:
            bytes_needed = memory(step, device)
        pipe.send(bytes_needed)
        while pipe.recv() == "go":
            if latest < 1:
                step()  # warm up the caches
            # the loop of a training, at least a tenth of a second of it
            count = max(3, round(0.1 / latest)) if latest < 1 else 1
            times = [clock(step, device) for _ in range(count)]
            latest = statistics.median(times)
            pipe.send(times)
    except (ImportError, torch.linalg.LinAlgError) as error:  # autograd at repeated eigenvalues
        pipe.send(str(error))


def measure(what, dims, batch, dtype, kind, device, seconds):
    """Return the median time of each method in seconds; the processes take turns."""
    context = multiprocessing.get_context("spawn")
    pipes, peak, times, failed, processes = {}, {}, {}, {}, []
    for name in METHODS[what]:
        pipes[name], theirs = context.Pipe()
        arguments = (theirs, what, name, dims, batch, dtype, kind, device)
        processes.append(context.Process(target=serve, args=arguments, daemon=True))
        processes[-1].start()
        times[name], peak[name] = [], pipes[name].recv()  # blocks until the process is ready
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
    """Format a table cell."""
    return f"{'-' if value is None else f'{scale * value:.2f}{unit}':>13}"


def print_steps(cases, seconds, device):
    """Print the table of training steps and return its rows."""
    print(f"{'ms per step':38}" + "".join(f"{name:>13}" for name in STEPS) + f"{'lower bound':>13}")
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
        print(f"{'    peak MiB':38}" + "".join(cell(memory.get(n), 2**-20) for n in STEPS))
        rows.append({"case": label, **found, "ratio": ratio})
    for shape, text in QUOTE.items():
        dims = "-".join(map(str, SHAPES[shape]))
        print(f"{dims}, 30: {text} ms, authors' MATLAB code in Octave, 2 cores (separate run)")
    return rows


def print_updates(shapes, dtypes, seconds, device):
    """Print the table of updates and return its rows."""
    print(f"\n{'ms per update':38}" + "".join(f"{name:>13}" for name in UPDATES))
    rows = []
    for shape, dtype in product(shapes, dtypes):
        dims = SHAPES[shape]
        found = measure("update", dims, 1, getattr(torch, dtype), "full", device, seconds)
        label = f"{'-'.join(map(str, dims))}, {dtype}"
        times = found["seconds"]
        print(f"{label:38}" + "".join(cell(times.get(name), 1e3) for name in UPDATES), flush=True)
        rows.append({"case": label, **found})
    return rows


def print_layers(shapes, batches, seconds, device):
    """Print the table of steps with other layers and return its rows."""
    names = ("spdnet", "graphed", "spd_learn")
    print(f"\n{'ms per step':38}" + "".join(f"{name:>13}" for name in names))
    rows = []
    for shape, batch in product(shapes, batches):
        dims, plain = SHAPES[shape], None
        for layer in LAYERS:
            found = measure(layer, dims, batch, torch.float32, "full", device, seconds)
            times = found["seconds"]
            best = min(times.get(name, float("inf")) for name in names[:2])
            plain = plain or best
            line = f"{f'{dims}, {batch}, {layer}':38}"
            line += "".join(cell(times.get(name), 1e3) for name in names)
            line += f"{best / plain:8.2f}x plain"
            if "spd_learn" in times:
                peer = times["spd_learn"] * LAYERS[layer].get("networks", 1)
                line += f"{peer / best:8.1f}x spd_learn"
            print(line, flush=True)
            rows.append({"case": f"{shape}, {batch}, {layer}", **found})
    return rows


def main():
    """Print the tables and optionally write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--shapes", default="400,93")
    parser.add_argument("--batches", default=None)
    parser.add_argument("--dtypes", default=None)
    parser.add_argument("--kinds", default="full,clipped")
    parser.add_argument("--without", default="", help="comma-separated methods to skip")
    parser.add_argument("--layers", action="store_true", help="only the table of other layers")
    parser.add_argument("--seconds", type=float, default=12.0, help="measurement time per row")
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
    if arguments.layers:
        print_layers(shapes, list(map(int, batches)), seconds, device)
        return
    cases = product(shapes, map(int, batches), dtypes, arguments.kinds.split(","))
    steps = print_steps(cases, seconds, device)
    updates = print_updates(shapes, dtypes, min(seconds, 2), device)
    if arguments.out:
        with open(arguments.out, "w") as file:
            json.dump({"machine": machine, "steps": steps, "updates": updates}, file, indent=1)


if __name__ == "__main__":
    main()
