"""Run the code blocks of a page and capture their output, for the tests and the site."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

FENCE = re.compile(r"^```(?P<language>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_RUN = re.compile(r"<!--\s*not run(?P<reason>[^>]*)-->")
WIDTH = "86"  # characters per line on the site


class Block(NamedTuple):
    """A code block: language, text, position, and whether it is skipped."""

    language: str
    text: str
    line: int
    end: int
    skipped: bool


def blocks(page):
    """Return the code blocks of a page in order, without Sphinx directives."""
    found = []
    for match in FENCE.finditer(page):
        before = page[: match.start()]
        last = before.rstrip().rsplit("\n", 1)[-1]
        line = before.count("\n") + 1
        if not match["language"].startswith("{"):
            skipped = bool(NOT_RUN.fullmatch(last))
            found.append(Block(match["language"], match["text"], line, match.end(), skipped))
    return found


def commands(block):
    """Return the words of each command of a shell block."""
    lines = block.text.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


class Session:
    """Runner of code blocks: ``python`` in one namespace, ``sh`` command by command.

    A ``toml`` block is written to the file named in its first line. ``others`` is called with the
    words of commands other than spdnet and torchrun.
    """

    def __init__(self, others=lambda words: None):
        self.names = {"__name__": "__main__"}
        self.others = others
        if "" not in sys.path:  # import from the current folder, as in an interactive session
            sys.path.insert(0, "")

    def run(self, block):
        """Run one block in the current folder and return its output."""
        if block.language == "python":
            code = compile("\n" * block.line + block.text, "<page>", "exec")
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(code, self.names)
            return printed.getvalue()
        if block.language == "toml":
            file = re.match(r"# (\w+\.toml)\n", block.text)
            assert file, "expected the file name in the first line, such as # my.toml"
            Path(file[1]).write_text(block.text)
        if block.language != "sh":
            return ""
        said = [(words, self.command(words)) for words in commands(block)]
        said = [(words, text) for words, text in said if text]
        if len(commands(block)) == 1:
            return "".join(text for _, text in said)
        return "\n".join(f"$ {shlex.join(words)}\n{text}" for words, text in said)

    def command(self, words):
        """Run one command and return its output."""
        program, *rest = words
        env = {"COLUMNS": WIDTH, "TERMINAL_WIDTH": WIDTH, "NO_COLOR": "1", "TERM": "dumb"}
        if program not in ("spdnet", "torchrun"):
            self.others(words)
            return ""
        if program == "torchrun" or "--devices" in rest:  # starts child processes
            module = {"torchrun": "torch.distributed.run", "spdnet": "spdnet"}[program]
            done = subprocess.run(
                [sys.executable, "-m", module, *rest],
                capture_output=True,
                text=True,
                check=False,
                env=os.environ | env,
            )
            assert done.returncode == 0, (words, done.stderr)
            return done.stdout
        from typer.testing import CliRunner

        from spdnet.cli import app

        done = CliRunner().invoke(app, rest, env=env)
        assert done.exit_code == 0, (words, done.output, done.exception)
        return done.stdout
