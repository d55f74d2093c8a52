"""Random parts of a data set that are held out, for validation or for testing."""

import numpy
from numpy.typing import ArrayLike, NDArray

from spdnet._checks import as_array, require_number

_TRIES = 200


def hold_out(
    y: ArrayLike, fraction: float, *, groups: ArrayLike | None = None, seed: int = 0
) -> NDArray[numpy.bool_]:
    """Choose a random part, with the classes in proportion.

    Every class keeps a member that is not held out, so that rare classes need no care; a class
    with a single member is never held out.

    Parameters
    ----------
    y : array, shape (N,)
        Classes.
    fraction : float
        Of all, between 0 and 1.
    groups : array, shape (N,), optional
        What is held out or kept as a whole, such as subjects. Of many random choices of groups the
        one is taken whose classes are nearest to the fraction.
    seed : int

    Returns
    -------
    array of bool, shape (N,)
        True where held out.

    Examples
    --------
    >>> from spdnet.data import hold_out
    >>> hold_out(["a", "a", "b", "b", "b", "c"], 0.4).sum()
    np.int64(2)
    """
    require_number("hold_out", "fraction", fraction, above=0, below=1)
    y = as_array("hold_out", y, "y")
    _, codes = numpy.unique(y, return_inverse=True)
    rng = numpy.random.default_rng(seed)
    if groups is None:
        return _by_class(codes, fraction, rng)
    groups = as_array("hold_out", groups, "groups")
    if groups.shape != y.shape:
        raise ValueError(
            f"hold_out: expected groups of shape {y.shape}, one for each of y, got {groups.shape}"
        )
    return _by_group(codes, fraction, groups, rng)


def _by_class(
    codes: NDArray[numpy.int64], fraction: float, rng: numpy.random.Generator
) -> NDArray[numpy.bool_]:
    counts = numpy.bincount(codes)
    exact = fraction * counts
    take = numpy.minimum(numpy.floor(exact), counts - 1).astype(int)
    wanted = round(fraction * len(codes)) - take.sum()
    # the rest goes to the classes with the largest remainders, ties in random order
    order = numpy.lexsort((rng.permutation(len(counts)), take - exact))
    for c in [c for c in order if take[c] < counts[c] - 1][: max(wanted, 0)]:
        take[c] += 1
    held = numpy.zeros(len(codes), dtype=bool)
    for c, n in enumerate(take):
        held[rng.permutation(numpy.flatnonzero(codes == c))[:n]] = True
    return held


def _by_group(
    codes: NDArray[numpy.int64],
    fraction: float,
    groups: NDArray[numpy.generic],
    rng: numpy.random.Generator,
) -> NDArray[numpy.bool_]:
    _, group = numpy.unique(groups, return_inverse=True)
    if group.max() + 1 == len(group):  # each is a group of its own
        return _by_class(codes, fraction, rng)
    table = numpy.zeros((group.max() + 1, codes.max() + 1))
    numpy.add.at(table, (group, codes), 1)
    total = table.sum(0)
    sizes = table.sum(1).tolist()
    smallest = min(sizes)
    most = max(fraction * len(codes), smallest)
    best, best_miss = None, numpy.inf
    for _ in range(_TRIES):
        chosen = numpy.zeros(len(table), dtype=bool)
        have = numpy.zeros(len(total))
        count = 0.0
        for g in rng.permutation(len(table)).tolist():
            # stop at the fraction; never take the last members of a class
            if count + smallest > most:
                break
            if count + sizes[g] <= most and ((with_it := have + table[g]) < total).all():
                chosen[g] = True
                have, count = with_it, count + sizes[g]
        miss = numpy.abs(have / total - fraction).sum()
        if chosen.any() and miss < best_miss:
            best, best_miss = chosen, miss
    if best is None:
        raise ValueError(
            f"hold_out: expected groups of which some can be held out with every class left, got "
            f"{len(table)} groups for {len(total)} classes; name the parts in a split, or hold "
            "out none"
        )
    return best[group]
