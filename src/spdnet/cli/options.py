"""Arguments and options that several commands have."""

from typing import Annotated

import typer

DATA = "`digits`, a .npz or .npy file, or a folder of classes."
LABELS = "Labels of a .npy file: .npy, or text, one a line."
GROUPS = "Whom each belongs to, such as subjects: .npy, or text, one a line."
Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA, show_default=False)]
Labels = Annotated[str | None, typer.Option(help=LABELS)]
Groups = Annotated[str | None, typer.Option(help=GROUPS)]
Bad = Annotated[str, typer.Option(help="Matrices that are not SPD: refuse, drop or repair them.")]
