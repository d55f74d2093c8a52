"""Page with the help of every command, and table of all settings."""

from typer.main import get_command
from typer.testing import CliRunner

from spdnet.cli import app
from spdnet.options.option import options
from spdnet.options.run import RunOptions

WIDTH = "79"


def make(place):
    """Write ``commands.md`` and ``settings.md`` to a folder."""
    parts = []
    for path in [[], *paths(get_command(app))]:
        name = " ".join(["spdnet", *path])
        parts.append(f"## {name}\n\n```text\n{help_of(path)}\n```\n")
    for file, text in {"commands.md": "\n".join(parts), "settings.md": settings_table()}.items():
        file = place / file
        if not file.is_file() or file.read_text() != text:
            file.write_text(text)


def settings_table():
    """Return a table of the settings of a run with their defaults."""
    rows = [
        f"| `{name}` | {found.default_text} | {found.text()} |"
        for name, found in options(RunOptions).items()
    ]
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows, ""])


def paths(group, above=()):
    """Yield the words of each command of a group, such as ``data info``."""
    for name, command in group.commands.items():
        yield [*above, name]
        if hasattr(command, "commands"):
            yield from paths(command, (*above, name))


def help_of(path):
    """Return the help of a command without colors."""
    env = {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    found = CliRunner().invoke(app, [*path, "--help"], prog_name="spdnet", env=env)
    if found.exit_code != 0:
        raise RuntimeError(f"spdnet {' '.join(path)} --help: {found.output}")
    return "\n".join(line.rstrip() for line in found.output.strip("\n").splitlines())
