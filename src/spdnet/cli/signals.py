"""Signals by which a cluster ends a process."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from spdnet.runs.watch import StopRequest

#: sent by schedulers before they kill a process; Windows has only the first
_SIGNALS = [getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name)]


@contextmanager
def stop_on_signals(stop: StopRequest) -> Iterator[None]:
    """Turn SIGTERM and SIGUSR1 into a request to stop.

    Ignored signals stay ignored. Only the main thread can handle signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        stop()

    before = {s: signal.getsignal(s) for s in _SIGNALS}
    for s, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(s, handle)
    try:
        yield
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)
