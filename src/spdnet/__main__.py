"""``python -m spdnet``."""

from spdnet.cli import main

main()
