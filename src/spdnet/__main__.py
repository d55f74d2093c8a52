"""``python -m spdnet``."""

from spdnet.cli import app

app(prog_name="spdnet")
