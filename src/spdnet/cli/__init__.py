"""The command line."""

from spdnet.cli.app import app

__all__ = ["app"]
