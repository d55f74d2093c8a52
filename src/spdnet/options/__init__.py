"""The description of every option, from which all interfaces are derived.

A hyperparameter is one field of :class:`~spdnet.options.recipe.RecipeOptions`; what a run adds is a
field of :class:`~spdnet.options.run.RunOptions`. The options of ``spdnet train``, the settings
file, the checks, the docstrings and the table of the documentation come from these fields. The
modules here import no third-party library, so that ``spdnet train --help`` is quick.
"""
