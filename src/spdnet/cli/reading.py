"""Reading data with a progress bar."""

from rich.console import Console
from rich.progress import Progress

from spdnet.data import Dataset, load_dataset


def read_shown(
    data: str, labels: str | None, groups: str | None, *, labeled: bool | None
) -> Dataset:
    """Read an embedded data set, a file or a folder, with a progress bar on a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("reading", total=None)
        return load_dataset(
            data,
            labels,
            groups,
            labeled=labeled,
            on_file=lambda done, total: progress.update(task, completed=done, total=total),
        )
