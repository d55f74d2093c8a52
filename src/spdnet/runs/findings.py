"""What the numbers of a run mean for its network, in sentences."""

from typing import Any

NOTHING_RAISED = "no ReEig raised an eigenvalue"
NO_EFFECT = "eps has no effect with fewer than two BiMaps: ReEigs stand between them"
_NEARLY_ALL = 0.95
_RATIO = 0.7  # from size to size, of the sizes that are suggested


def percent(share: float) -> str:
    """A share in percent for people: 100 %, 43 %, 0.3 %, 0 %.

    Examples
    --------
    >>> from spdnet.runs.findings import percent
    >>> [percent(share) for share in (1, 0.9999, 0.43, 0.003, 1e-6, 0)]
    ['100 %', '99 %', '43 %', '0.3 %', 'less than 0.01 %', '0 %']
    """
    value = 100 * share
    if 0 < value < 0.01:
        return "less than 0.01 %"
    if value < 9.95:
        return f"{value:.2g} %"
    return f"{value if value == 100 else min(value, 99):.0f} %"  # 100 means all


def raised(found: dict[str, Any]) -> list[float]:
    """The share of the eigenvalues that each ReEig raised, of the part that is scored."""
    return [layer["clipped"] for layer in found["spectra"] if "clipped" in layer]


def none_raised(found: dict[str, Any]) -> bool:
    """Whether no ReEig raised an eigenvalue, of the part that is scored or of the training part."""
    return not any(raised(found)) and not any(found.get("raised_in_training", ()))


def is_linear(found: dict[str, Any]) -> bool:
    """Whether the network did no more than a linear classifier on logarithms does.

    A square orthonormal BiMap commutes with the logarithm, so that SPDNet without normalisation is
    linear in the logarithms where no BiMap reduces the size and no ReEig raises an eigenvalue.

    Parameters
    ----------
    found : dict
        What is in ``results.json``: ``network``, ``dims`` and ``spectra``.
    """
    square = len(set(found["dims"])) == 1
    return found["network"] == "SPDNet" and square and none_raised(found)


def structure(found: dict[str, Any]) -> str:
    """One sentence about what the layers came to; empty where there is nothing to say.

    Parameters
    ----------
    found : dict
        As for :func:`is_linear`.
    """
    shares, dims = raised(found), found["dims"]
    n_bimaps = len(dims) - 1
    if is_linear(found):
        centred = "centred " if _is_centred(found) else ""
        why = [_nothing_raised(found)] * bool(shares)
        why += ["no BiMap reduces the size"] * (n_bimaps > 0)
        more = _suggestions(dims[0], has_reeig=bool(shares))
        return (
            f"{' and '.join(why) or 'there is no BiMap'}: this network is a linear classifier on "
            f"the logarithms of the {centred}matrices{more}"
        )
    plain = found["network"].split(", ")[0] == "SPDNet" and "norm" not in found["network"]
    if plain and n_bimaps > 1 and none_raised(found):
        return f"{_nothing_raised(found)}: the BiMaps in a row act as one"
    return ""


def flattened(found: dict[str, Any], eps: float | str) -> str:
    """A warning where a ReEig raised nearly all eigenvalues; empty where none did.

    Parameters
    ----------
    found : dict
        As for :func:`is_linear`.
    eps : float or str
        The threshold.
    """
    most = max(raised(found), default=0.0)
    if most <= _NEARLY_ALL:
        return ""
    advice = ["scale them"]
    if not _is_centred(found) and found["network"] != "TSMNet":
        advice.append("centre them")
    advice.append("lower eps" if isinstance(eps, str) else "give eps as a percentage")
    return (
        f"ReEig raised {percent(most)} of the eigenvalues: nearly nothing of the data is left; "
        f"{', '.join(advice[:-1])}{',' * (len(advice) > 2)} or {advice[-1]}"
    )


def one_group(part: str, *, drawn: bool) -> str:
    """A warning that the scored part holds a single group.

    Parameters
    ----------
    part : str
        Its name.
    drawn : bool
        Whether it was drawn at random, so that other seeds draw others.
    """
    return f"the part {part!r} holds one group only: with another the figure may be another" + (
        "; --repeat 10 draws the parts anew and gives mean and deviation" if drawn else ""
    )


def _nothing_raised(found: dict[str, Any]) -> str:
    """Spectra are taken of some of the matrices where there are many."""
    if "spectra_of" not in found:
        return NOTHING_RAISED
    looked_at = {found["scored"]: found["spectra_of"]}
    if "raised_of" in found:
        looked_at["train"] = found["raised_of"]
    all_of_them = sum(found["parts"][part]["n"] for part in looked_at)
    count = sum(looked_at.values())
    return NOTHING_RAISED + (f" of the {count} matrices looked at" if count < all_of_them else "")


def _is_centred(found: dict[str, Any]) -> bool:
    return any(layer["layer"] == "Center" for layer in found["spectra"])


def _suggestions(n: int, *, has_reeig: bool) -> str:
    """What makes the network more than linear, for matrices of a size."""
    smaller = [max(1, round(n * _RATIO**i)) for i in (1, 2)]
    dims = f"--dims {n},{smaller[0]},{smaller[1]}"
    options = [dims] * (n > 1) + ["--eps 10%"] * has_reeig
    if not options:
        return ""
    return f"; {' or '.join(options)} {'make' if len(options) > 1 else 'makes'} it more than that"
