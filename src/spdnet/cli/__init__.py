"""The command line."""

from spdnet.cli.app import app, main

__all__ = ["app", "main"]
