"""Random numbers that depend on a seed alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_lock = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the global generator of torch, and restore it afterwards.

    All threads share that generator, so that one thread runs at a time.
    """
    with _lock, torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
