"""MATLAB files, read with care: they come from strangers, and scipy's reader crashes on some."""

from spdnet.data.io.matlab.load import load_mat

__all__ = ["load_mat"]
