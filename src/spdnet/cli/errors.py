"""Conversion of errors to a message and an exit code."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import typer

_FREE_SPACE = (
    "; free some space, then run the command again (for training, with --resume and --out): files "
    "that were already written are complete"
)
_ADVICE = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EROFS: "; choose a folder that is writable",
}
_LOST = (
    "train: expected the other processes of this training to respond, but one has ended or cannot "
    "be reached; see its error message. The last checkpoint is complete: resume with --resume and "
    "--out"
)
_INVALID = (
    ValueError,
    TypeError,
    FileNotFoundError,
    FileExistsError,
    IsADirectoryError,
    NotADirectoryError,
    PermissionError,
)


@contextmanager
def errors() -> Iterator[None]:
    """Exit with code 2 for invalid input, and with 1 for divergence, a full disk and so on."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of the output has closed it
    except _INVALID as error:
        _fail(error, 2)
    except (FloatingPointError, OSError, MemoryError) as error:
        _fail(error, 2 if getattr(error, "errno", None) == errno.ELOOP else 1)
    except RuntimeError as error:
        if str(error).startswith("Symlink loop"):  # of pathlib, before Python 3.13
            _fail(error, 2)
        if "gloo" in str(error).lower() or "nccl" in str(error).lower():
            _fail(RuntimeError(_LOST), 1)
        if not any(text in str(error) for text in ("out of memory", "can't allocate memory")):
            raise
        _fail(error, 1)
    except KeyboardInterrupt as error:
        raise typer.Exit(getattr(error, "exit_code", 130)) from None


def _fail(error: Exception, code: int) -> NoReturn:
    """Print the error and exit; of several processes with invalid input, only the first prints."""
    from spdnet.data.names import printable

    rank = os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0"))
    text = printable(_text(error), keep="\n")
    if rank == "0":
        typer.echo(f"error: {text}", err=True)
    elif code != 2:
        typer.echo(f"error in process {rank}: {text}", err=True)
    raise typer.Exit(code) from error


def _text(error: Any) -> str:
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}{_ADVICE.get(error.errno or 0, '')}"
    return str(error) or type(error).__name__
