"""Warnings that name the line of the user's code."""

import sys
import warnings

#: packages that are skipped in the search for the user's line, such as the wrappers of scikit-learn
_SKIPPED = {"spdnet", "sklearn", "torch", "joblib", "contextlib"}


def warn_user(message: str, category: type[Warning] = RuntimeWarning) -> None:
    """Issue a warning at the line outside of this package that led to it.

    Examples
    --------
    >>> import warnings
    >>> from spdnet._warnings import warn_user
    >>> with warnings.catch_warnings(record=True, action="always") as caught:
    ...     warn_user("check the scale")
    >>> str(caught[0].message), caught[0].category.__name__
    ('check the scale', 'RuntimeWarning')
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").split(".")[0] in _SKIPPED:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
