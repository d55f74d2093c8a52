"""Findings about a trained network, as sentences."""

from typing import TypeGuard

from torch.nn import Linear, Module

from spdnet.models import SPDNet
from spdnet.runs.results import PART_TITLES, RunResults

NOTHING_RAISED = "no ReEig raised an eigenvalue"
NO_EFFECT = "eps has no effect with fewer than two BiMaps: ReEig is used between two BiMaps"
_NEARLY_ALL = 0.95
_RATIO = 0.7  # ratio of consecutive sizes in suggestions


def percent(fraction: float) -> str:
    """Format a fraction as a percentage: 100 %, 43 %, 0.3 %, 0 %."""
    value = 100 * fraction
    if 0 < value < 0.01:
        return "less than 0.01 %"
    if value < 9.95:
        return f"{value:.2g} %"
    return f"{value if value == 100 else min(value, 99):.0f} %"  # 100 means all


def is_linear(found: RunResults, model: Module) -> bool:
    """Return whether the network is equivalent to a linear classifier on logarithms.

    A square orthonormal BiMap commutes with the logarithm. SPDNet without normalization is
    therefore linear in the logarithms if no BiMap reduces the size and no ReEig raises an
    eigenvalue.
    """
    if not _is_plain(model) or model.logeig is None or not isinstance(model.classifier, Linear):
        return False
    return len(set(found.dims)) == 1 and _none_raised(found)


def structure(found: RunResults, model: Module) -> str:
    """Return a sentence on what the layers are equivalent to, or an empty string."""
    n_bimaps = len(found.dims) - 1
    if is_linear(found, model):
        centered = "centered " if _is_centered(found) else ""
        why = [_nothing_raised(found)] * bool(found.raised)
        why += ["no BiMap reduces the size"] * (n_bimaps > 0)
        return (
            f"{' and '.join(why) or 'there is no BiMap'}: this network is a linear classifier on "
            f"the logarithms of the {centered}matrices{_suggestions(found)}"
        )
    if _is_plain(model) and n_bimaps > 1 and _none_raised(found):
        return f"{_nothing_raised(found)}: the consecutive BiMaps act as one"
    return ""


def flattened(found: RunResults, eps: float | str, *, can_center: bool = True) -> str:
    """Return a warning if a ReEig with threshold ``eps`` raised nearly all eigenvalues."""
    most = max(found.raised, default=0.0)
    if most <= _NEARLY_ALL:
        return ""
    advice = ["scale the matrices"]
    if can_center and not _is_centered(found):
        advice.append("center them")
    advice.append("lower eps" if isinstance(eps, str) else "set eps to a percentage")
    return (
        f"ReEig raised {percent(most)} of the eigenvalues, so that almost no information is left; "
        f"{', '.join(advice[:-1])}{',' * (len(advice) > 2)} or {advice[-1]}"
    )


def one_group(part: str, *, drawn: bool) -> str:
    """Return a warning that a part has only one group; ``drawn`` states whether it is random."""
    return f"the {PART_TITLES[part]} set has only one group: results may differ for others" + (
        "; --repeat 10 draws new splits and gives mean and standard deviation" if drawn else ""
    )


def _is_plain(model: Module) -> TypeGuard[SPDNet]:
    return type(model) is SPDNet and not model.norms


def _none_raised(found: RunResults) -> bool:
    return not any(found.raised) and not any(found.raised_in_training)


def _nothing_raised(found: RunResults) -> str:
    """Return the finding, with the number of examined matrices unless all were examined."""
    examined = {found.scored: found.spectra_of, "train": found.raised_of}
    total = sum(found.parts[part].n for part in examined)
    count = sum(examined.values())
    return NOTHING_RAISED + (f" of the {count} examined matrices" if count < total else "")


def _is_centered(found: RunResults) -> bool:
    return any(layer.layer == "Center" for layer in found.spectra)


def _suggestions(found: RunResults) -> str:
    """Suggest options that make the network more than linear."""
    n = found.dims[0]
    smaller = [max(1, round(n * _RATIO**i)) for i in (1, 2)]
    dims = f"--dims {n},{smaller[0]},{smaller[1]}"
    options = [dims] * (n > 1) + ["--eps 10%"] * bool(found.raised)
    if not options:
        return ""
    return f"; {' or '.join(options)} {'make' if len(options) > 1 else 'makes'} it nonlinear"
