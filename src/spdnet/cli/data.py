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

#: maximum number of matrices in the mean that completes the others in the search for bad trials
_MAX_MEAN = 100
_DESCRIPTOR = tuple(options(DescriptorOptions))


def run_info(**given: Any) -> None:
    """Run ``spdnet data info``."""
    command = InfoCommand(**given)
    found = read_shown(command.data, command.labels, command.groups, labeled=None)
    console = make_console()
    is_signals, stored = command.signals or not found.is_matrices, isinstance(found.X, StoredArray)
    examined = examine_signals(found.X) if is_signals else examine(found.X, missing=not stored)
    lines = describe(found, examined)
    if valid := valid_part(found, examined):
        lines += describe_bad_trials(*valid)
    for line in lines:
        console.print(printable(line), soft_wrap=True)


def valid_part(
    data: Dataset, found: Examination | SignalExamination
) -> tuple[Dataset, NDArray[numpy.bool_]] | None:
    """Return the valid matrices, completed and made positive definite, and which were incomplete.

    For signals, the matrices are their covariances. Return None if no matrix is valid.
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
    some = X[:: -(-len(X) // _MAX_MEAN)] if len(singular) == 0 else X
    try:
        conditioner = Conditioner().fit(some, None, singular=len(singular) > 0)
    except ValueError:  # inconsistent entries, which training reports
        return None
    incomplete = is_incomplete(replace(valid, X=X.numpy()), conditioner)
    return replace(valid, X=conditioner.transform(X).numpy(), channels=None), incomplete


def run_build(**given: Any) -> None:
    """Run ``spdnet data build``."""
    command = BuildCommand(**given)
    check_options("build", command)
    source, index = command.source, command.index
    descriptor = None
    if command.of == "matrices":
        if unused := [name for name in (*_DESCRIPTOR, "size", "every") if name in given]:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
            raise ValueError(
                f"build: expected {flags} with --of sequences or signals, got --of matrices"
            )
        sources = matrix_sources(source, None if index is None else read_index(index))
    else:
        if index is not None:
            raise ValueError(f"build: expected an index with --of matrices, got --of {command.of}")
        size, transposed = (command.size, command.size), command.of == "signals"
        sources = sequence_sources(source, size=size, every=command.every, transposed=transposed)
        own = {name: given[name] for name in _DESCRIPTOR if name in given}
        descriptor = Descriptor(**{"mode": "mean" if transposed else "trace", **own})
    if index is None:
        for note in notes_on_unused(source, sources):
            _print_note(note)
    if command.groups is not None:
        sources = with_groups(sources, read_column(command.groups, "groups"))
    if command.test is not None:
        sources = with_random_split(sources, command.test, seed=command.seed)
    about = {
        "from": text(source.resolve().name),
        "made": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "test": command.test,
        "seed": command.seed,
    }
    with _progress_of(command.of) as count:
        build(
            sources,
            command.out,
            descriptor,
            dtype=command.dtype,
            bad=command.bad,
            provenance=about,
            on_source=count,
            on_note=_print_note,
        )
    X = read(command.out).X
    typer.echo(f"{len(X)} matrices of {X.shape[1]} x {X.shape[2]}, {X.dtype}")
    typer.echo(f"file: {printable(str(command.out))}")


def _print_note(note: str) -> None:
    typer.echo(f"note: {printable(note)}", err=True)


def run_import(name: str, path: Path, index: Path | None = None) -> None:
    """Run ``spdnet data import``."""
    with _progress_of("files") as count:
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
def _progress_of(what: str) -> Iterator[Any]:
    """Show a progress bar on a terminal, and a line every ten seconds elsewhere."""
    began = last_line = time.monotonic()
    before: int | None = None  # done by an earlier attempt
    with Display.shown(make_console(stderr=True)) as display:

        def count(done: int, total: int) -> None:
            nonlocal last_line, before
            before = done - 1 if before is None else before
            now = time.monotonic()
            if display.live:
                display.count(what, done, total)
            elif now - last_line > 10 or done == total:
                last_line = now
                speed = (done - before) / max(1e-9, now - began)
                left = time_left((total - done) / max(1e-9, speed))
                display.say(f"{done} of {total} {what}, {speed:.0f}/s{left}")

        yield count
