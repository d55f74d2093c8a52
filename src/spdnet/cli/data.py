"""``spdnet data info``, ``build``, ``fetch`` and ``import``."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
)

from spdnet._checks import require_choice
from spdnet.cli.display import Speed
from spdnet.cli.reading import read_shown
from spdnet.cli.signals import stop_on_signals
from spdnet.data import Descriptor, build, examine, read
from spdnet.data.examination import examine_signals
from spdnet.data.io.files import text
from spdnet.data.io.index import read_index
from spdnet.data.io.readers import read_column
from spdnet.data.names import printable
from spdnet.data.sources import (
    matrix_sources,
    notes_on_unused,
    sequence_sources,
    with_groups,
    with_random_split,
)
from spdnet.data.summary import describe
from spdnet.paper.published import fetch, import_dataset
from spdnet.runs.pace import time_left
from spdnet.runs.watch import StopRequest

KINDS = ("matrices", "sequences", "signals")
#: defaults of the options that apply only to sequences and signals
_OWN: dict[str, Any] = {**asdict(Descriptor()), "mode": None, "size": 20, "every": 1}


def run_info(data: str, labels: str | None, groups: str | None, signals: bool) -> None:
    """Run ``spdnet data info``."""
    found = read_shown(data, labels, groups, labeled=None)
    console = Console(highlight=False, markup=False, emoji=False)
    look = examine_signals if signals or not found.is_matrices else examine
    for line in describe(found, look(found.X)):
        console.print(printable(line), soft_wrap=True)


def run_build(
    path: Path,
    out: Path,
    of: str,
    given: dict[str, Any],
    index: Path | None,
    groups: str | None,
    test: float | None,
    seed: int,
    **how: str,
) -> None:
    """Run ``spdnet data build``; ``given`` are the options of :data:`_OWN`."""
    require_choice("build", "of", of, KINDS)
    descriptor = None
    if of == "matrices":
        if changed := [k for k, v in given.items() if v != _OWN[k]]:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
            raise ValueError(
                f"build: expected {flags} with --of sequences or signals, got --of matrices"
            )
        sources = matrix_sources(path, None if index is None else read_index(index))
    else:
        if index is not None:
            raise ValueError(f"build: expected an index with --of matrices, got --of {of}")
        size, every, length = (given.pop(k) for k in ("size", "every", "clip_length"))
        transposed = of == "signals"
        sources = sequence_sources(path, size=(size, size), every=every, transposed=transposed)
        given["mode"] = given["mode"] or ("mean" if transposed else "trace")
        if length is not None and length >= 1 and length.is_integer():
            length = int(length)
        descriptor = Descriptor(**given, clip_length=length)
    if index is None:
        for note in notes_on_unused(path, sources):
            _say_note(note)
    if groups is not None:
        sources = with_groups(sources, read_column(groups, "groups"))
    if test is not None:
        sources = with_random_split(sources, test, seed=seed)
    about: dict[str, Any] = {
        "from": text(path.resolve().name),
        "made": time.strftime("%Y-%m-%d %H:%M:%S %z"),
    }
    about |= {"test": test, "seed": seed}
    with _counting(of) as count:
        build(sources, out, descriptor, **how, provenance=about, on_source=count, on_note=_say_note)
    X = read(out).X
    typer.echo(f"{len(X)} matrices of {X.shape[1]} x {X.shape[2]}, {X.dtype}")
    typer.echo(f"file: {printable(str(out))}")


def _say_note(note: str) -> None:
    typer.echo(f"note: {printable(note)}", err=True)


def run_import(name: str, path: Path, index: Path | None) -> None:
    """Run ``spdnet data import``."""
    with _counting("files") as count:
        file = import_dataset(name, path, index=index, on_source=count)
    typer.echo(f"file: {printable(str(file))}")


def run_fetch(name: str) -> None:
    """Run ``spdnet data fetch``."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        tasks = [progress.add_task(what, total=None) for what in ("downloading", "importing")]
        progress.update(tasks[1], visible=False)

        def show(task: Any, done: int, total: int | None) -> None:
            progress.update(task, completed=done, total=total, visible=True)

        count, read = (partial(show, task) for task in tasks)
        file = fetch(name, on_bytes=count, on_source=read)
    typer.echo(f"file: {file}")


@contextmanager
def _counting(what: str) -> Iterator[Any]:
    """Show a progress bar on a terminal, and a line every ten seconds elsewhere."""
    console = Console(stderr=True)
    began = time.monotonic()
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), Speed(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=None)
        told, before = began, None  # before: done by an earlier attempt

        def count(done: int, total: int) -> None:
            nonlocal told, before
            before = done - 1 if before is None else before
            progress.update(task, completed=done, total=total)
            now = time.monotonic()
            if not console.is_terminal and (now - told > 10 or done == total):
                told = now
                speed = (done - before) / max(1e-9, now - began)
                left = time_left((total - done) / max(1e-9, speed))
                console.print(f"{done} of {total} {what}, {speed:.0f}/s{left}", highlight=False)

        try:
            with stop_on_signals(StopRequest()):
                yield count
        except KeyboardInterrupt:
            console.print("stopped; give the same command again to resume")
            raise
