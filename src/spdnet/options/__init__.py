"""Description of every option, from which all interfaces are derived.

A hyperparameter is one field of :class:`~spdnet.options.recipe.RecipeOptions`, an option of a run a
field of :class:`~spdnet.options.run.RunOptions`, and a command a class in
:mod:`spdnet.options.commands`. The command line, the estimator, the settings file, validation,
docstrings and the documentation are derived from these fields. The modules here import no
third-party libraries, so that ``spdnet train --help`` is fast.
"""
