"""What ``spdnet --help`` says, for every command, as one page."""

from typer.main import get_command
from typer.testing import CliRunner

from spdnet.cli import app

WIDTH = "79"


def make(place):
    """Write ``commands.md`` into a folder."""
    parts = []
    for path in [[], *paths(get_command(app))]:
        name = " ".join(["spdnet", *path])
        parts.append(f"## {name}\n\n```text\n{help_of(path)}\n```\n")
    text = "\n".join(parts)
    file = place / "commands.md"
    if not file.is_file() or file.read_text() != text:
        file.write_text(text)


def paths(group, above=()):
    """The words of each command below a group, such as ``data info``."""
    for name, command in group.commands.items():
        yield [*above, name]
        if hasattr(command, "commands"):
            yield from paths(command, (*above, name))


def help_of(path):
    """The text, without colours."""
    env = {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
    found = CliRunner().invoke(app, [*path, "--help"], prog_name="spdnet", env=env)
    if found.exit_code != 0:
        raise RuntimeError(f"spdnet {' '.join(path)} --help: {found.output}")
    return "\n".join(line.rstrip() for line in found.output.strip("\n").splitlines())
