"""Data sets of SPD matrices."""

from spdnet.datasets.digits import load_digits_spd

__all__ = ["load_digits_spd"]
