"""``spdnet data info``, ``build``, ``fetch`` and ``import``."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy
import torch
import typer
from numpy.typing import NDArray
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from spdnet.adaptation import Conditioner
from spdnet.cli.display import Display, make_console, read_shown
from spdnet.data import Dataset, Descriptor, StoredArray, build, clean, examine, read
from spdnet.data.examination import (
    Examination,
    SignalExamination,
    covariances_of,
    definable,
    examine_signals,
)
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
from spdnet.options.commands import BuildCommand, DescriptorOptions, InfoCommand
from spdnet.options.option import check_options, options
from spdnet.paper.published import fetch, import_dataset
from spdnet.runs.bad_trials import describe_bad_trials
from spdnet.runs.conditioning import is_incomplete
from spdnet.runs.pace import time_left

#: matrices whose mean completes the others before bad trials are looked for
_MEAN_OF = 100
_DESCRIPTOR = tuple(options(DescriptorOptions))


def run_info(**given: Any) -> None:
    """Run ``spdnet data info``."""
    wanted = InfoCommand(**given)
    found = read_shown(wanted.data, wanted.labels, wanted.groups, labeled=None)
    console = make_console()
    is_signals, stored = wanted.signals or not found.is_matrices, isinstance(found.X, StoredArray)
    examined = examine_signals(found.X) if is_signals else examine(found.X, missing=not stored)
    lines = describe(found, examined)
    if valid := valid_part(found, examined):
        lines += describe_bad_trials(*valid)
    for line in lines:
        console.print(printable(line), soft_wrap=True)


def valid_part(
    data: Dataset, found: Examination | SignalExamination
) -> tuple[Dataset, NDArray[numpy.bool_]] | None:
    """Return valid matrices, made positive definite and complete, and which ones were incomplete.

    Of signals, these are their covariances. The result is None if there are none.
    """
    matrices = found.covariances if isinstance(found, SignalExamination) else found
    bad = numpy.setdiff1d(matrices.bad, singular := definable(data, matrices))
    if len(bad) == len(data):
        return None
    valid = data.take(numpy.setdiff1d(numpy.arange(len(data)), bad))
    if matrices is not found:
        C = covariances_of(numpy.asarray(valid.X), "sample", 1e-3, missing=True)
        valid = replace(valid, X=C)
    incomplete = numpy.zeros(len(valid), dtype=bool)
    if not matrices.missing and len(singular) == 0:
        return valid, incomplete
    X = torch.from_numpy(clean(valid.X, missing=True, on_singular=lambda: None)[0])
    some = X[:: -(-len(X) // _MEAN_OF)] if len(singular) == 0 else X
    try:
        conditioner = Conditioner().fit(some, None, singular=len(singular) > 0)
    except ValueError:  # entries contradict each other: training says so
        return None
    incomplete = is_incomplete(replace(valid, X=X.numpy()), conditioner)
    return replace(valid, X=conditioner.transform(X).numpy(), channels=None), incomplete


def run_build(**given: Any) -> None:
    """Run ``spdnet data build``."""
    wanted = BuildCommand(**given)
    check_options("build", wanted)
    source, index = wanted.source, wanted.index
    descriptor = None
    if wanted.of == "matrices":
        if unused := [name for name in (*_DESCRIPTOR, "size", "every") if name in given]:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
            raise ValueError(
                f"build: expected {flags} with --of sequences or signals, got --of matrices"
            )
        sources = matrix_sources(source, None if index is None else read_index(index))
    else:
        if index is not None:
            raise ValueError(f"build: expected an index with --of matrices, got --of {wanted.of}")
        size, transposed = (wanted.size, wanted.size), wanted.of == "signals"
        sources = sequence_sources(source, size=size, every=wanted.every, transposed=transposed)
        own = {name: given[name] for name in _DESCRIPTOR if name in given}
        descriptor = Descriptor(**{"mode": "mean" if transposed else "trace", **own})
    if index is None:
        for note in notes_on_unused(source, sources):
            _say_note(note)
    if wanted.groups is not None:
        sources = with_groups(sources, read_column(wanted.groups, "groups"))
    if wanted.test is not None:
        sources = with_random_split(sources, wanted.test, seed=wanted.seed)
    about = {
        "from": text(source.resolve().name),
        "made": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "test": wanted.test,
        "seed": wanted.seed,
    }
    with _counting(wanted.of) as count:
        build(
            sources,
            wanted.out,
            descriptor,
            dtype=wanted.dtype,
            bad=wanted.bad,
            provenance=about,
            on_source=count,
            on_note=_say_note,
        )
    X = read(wanted.out).X
    typer.echo(f"{len(X)} matrices of {X.shape[1]} x {X.shape[2]}, {X.dtype}")
    typer.echo(f"file: {printable(str(wanted.out))}")


def _say_note(note: str) -> None:
    typer.echo(f"note: {printable(note)}", err=True)


def run_import(name: str, path: Path, index: Path | None = None) -> None:
    """Run ``spdnet data import``."""
    with _counting("files") as count:
        file = import_dataset(name, path, index=index, on_source=count)
    typer.echo(f"file: {printable(str(file))}")


def run_fetch(name: str) -> None:
    """Run ``spdnet data fetch``."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TimeRemainingColumn(), console=make_console(stderr=True)) as progress:
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
    began = told = time.monotonic()
    before: int | None = None  # done by an earlier attempt
    with Display.shown(make_console(stderr=True)) as display:

        def count(done: int, total: int) -> None:
            nonlocal told, before
            before = done - 1 if before is None else before
            now = time.monotonic()
            if display.live:
                display.count(what, done, total)
            elif now - told > 10 or done == total:
                told = now
                speed = (done - before) / max(1e-9, now - began)
                left = time_left((total - done) / max(1e-9, speed))
                display.say(f"{done} of {total} {what}, {speed:.0f}/s{left}")

        yield count
