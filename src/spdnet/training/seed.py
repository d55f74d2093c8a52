"""Random numbers that a seed alone decides."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_alone = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's own generator from a seed on; afterwards it stands where it stood.

    Layers draw their weights from that generator, which all threads share: one thread at a time.
    """
    with _alone, torch.random.fork_rng():
        torch.manual_seed(seed)
        yield
