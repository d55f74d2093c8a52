"""Damaged files and hostile names for tests of untrusted input."""

import math
import os
import random
import re
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

#: number of random inputs per reader; 0 for a small, reproducible number
EXAMPLES = int(os.environ.get("SPDNET_FUZZ_EXAMPLES", "0"))
#: bytes of additional memory that reading a small file may use
MEMORY = 2**30
#: number of inputs tried and refused, by reader
TRIED, REFUSED = Counter(), Counter()

#: names of classes and files with markup, formulas, control characters and the like
NAMES = [
    "<script>document.body.dataset.hacked=1</script>",
    '" onload="document.body.dataset.hacked=1" x="',
    "'><svg/onload=alert(1)>",
    "--><script>alert(1)</script><!--",
    "]]></text></svg><img src=x onerror=alert(1)>",
    "</title><script>alert(1)</script>",
    "&lt;b&gt; &amp;",
    'id="x" href="#y" url(#z)',
    '=HYPERLINK("http://example.com","click")',
    "+1+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1+1",
    "\r=1+1",
    "'=1+1",
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "\u202egnp.exe",
    "two\nlines",
    "\x00nul\x7f\x9b",
    "[bold red]markup[/] [link=http://x]",
    "$x^2$ \\frac",
    'a,b;"c"',
    "",
]

_ODD = [b"\xff" * 4, b"\x00" * 4, b"\x80\x00\x00\x00", b"\xff\xff\xff\x7f", b"\xff" * 8]
_ODD += [b"PK\x05\x06", b"\x00", b"\n", b'"', b"[" * 3000, b"-1", b"1e999", b"nan", b"\xed\xa0\x80"]
_NUMBERS = [b"0", b"-1", b"1000000000000", b"99999999999999999999", b"3.5", b"'a'", b"True", b"10L"]
_TYPES = [
    b"|O",
    b"<U0",
    b"<f2",
    b">f8",
    b"<c16",
    b"<i8",
    b"|S9",
    b"<M8[s]",
    b"<f16",
    b"<U9",
    b"|V8",
]


def fuzz(examples):
    """Return settings for this number of reproducible examples, or EXAMPLES random ones."""
    return settings(
        max_examples=EXAMPLES or examples,
        derandomize=not EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def damage(data, steps):
    """Return the bytes after damage in steps, each given by a kind and a seed."""
    data = bytearray(data)
    for kind, seed in steps:
        rng = random.Random(seed)
        a, b = (min(len(data), int(len(data) * rng.random() ** 1.5)) for _ in range(2))
        a, b = min(a, b), max(a, b)
        if kind == "flip" and data:
            for _ in range(rng.choice((1, 1, 2, 8))):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        elif kind == "cut":
            del data[b:]
        elif kind == "delete":
            del data[a:b]
        elif kind == "double":
            data[a:a] = data[a:b]
        elif kind == "insert":
            data[a:a] = rng.randbytes(rng.randrange(1, 30))
        elif kind == "overwrite":
            odd = rng.choice(_ODD)
            data[a : a + len(odd)] = odd
        elif kind == "number":
            data = bytearray(_one_replaced(bytes(data), rb"\d+", rng.choice(_NUMBERS), rng))
        elif kind == "type":
            data = bytearray(
                _one_replaced(bytes(data), rb"[<>|][a-zA-Z]\d+", rng.choice(_TYPES), rng)
            )
        elif kind == "noise":
            data[a:b] = rng.randbytes(b - a)
    return bytes(data)


def _one_replaced(data, pattern, new, rng):
    found = list(re.finditer(pattern, data))
    if not found:
        return data
    one = rng.choice(found)
    return data[: one.start()] + new + data[one.end() :]


KINDS = ["flip", "cut", "delete", "double", "insert", "overwrite", "number", "type", "noise"]
accidents = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 2**32)), min_size=1, max_size=4
)


def try_to(name, read, errors, *, frugal=True):
    """Check that damaged input is read without warnings or refused with one of the errors.

    If ``frugal``, also check that it is refused before large memory is requested.
    """
    TRIED[name] += 1
    refused = None
    with warnings.catch_warnings(record=True) as caught, limited_memory():
        warnings.simplefilter("always")
        try:
            read()
        except errors as error:
            refused = error
            REFUSED[name] += 1
    assert refused is None or str(refused)
    assert not (frugal and _is_memory(refused))
    assert not caught, caught[0]


def _is_memory(error):
    """Return whether the error or one of its causes is a failed memory allocation."""
    while error is not None:
        if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
            return True
        error = error.__cause__
    return False


@contextmanager
def limited_memory():
    """Limit memory to the current use plus MEMORY; do nothing on systems without /proc."""
    try:
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (ImportError, OSError):
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + MEMORY
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([10**400, -1, 0, 2**63, 2**31])
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from([*NAMES, "digits", "none", "10%", "float64", "cpu", math.inf]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@st.composite
def changed(draw, tree, changes=3):
    """Draw a copy of a tree of plain values with some entries deleted or replaced."""
    import copy

    tree = copy.deepcopy(tree)
    for _ in range(draw(st.integers(1, changes))):
        node = tree
        while True:
            keys = list(node) if isinstance(node, dict) else list(range(len(node)))
            if not keys:
                break
            key = draw(st.sampled_from(keys))
            inner = node[key]
            if isinstance(inner, dict | list) and inner and draw(st.integers(0, 3)):
                node = inner
                continue
            if draw(st.integers(0, 3)):
                node[key] = draw(values)
            else:
                del node[key]
            break
    return tree
