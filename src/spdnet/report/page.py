"""The page: headline, curves, confusion, classes, spectra, weights, settings, environment."""

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from spdnet.datasets.names import printable
from spdnet.experiments import RunFolder
from spdnet.experiments.findings import percent, structure
from spdnet.experiments.run_folder import write
from spdnet.report import figures

PARTS = {"train": "training", "val": "validation", "test": "test"}
_CSS = """
:root { color-scheme: light; --ink: #0f172a; --soft: #64748b; --line: #e2e8f0; --blue: #2563eb; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 64rem; color: var(--ink);
  background: #fff; font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
p { margin: .3rem 0; max-width: 46rem; } .soft { color: var(--soft); font-size: .9rem; }
.tiles { display: grid; gap: .75rem; margin: 1.2rem 0;
  grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); }
.tile { border: 1px solid var(--line); border-radius: .6rem; padding: .7rem .9rem; }
.tile b { display: block; font-size: 1.45rem; font-variant-numeric: tabular-nums; }
.tile.first b { color: var(--blue); }
.note { border-left: 4px solid #d97706; background: #fffbeb; padding: .4rem .8rem; }
.pictures { display: grid; gap: .5rem 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 17rem), 1fr)); }
.pictures.wide { grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); }
svg { display: block; width: 100%; height: auto; }
.scroll { overflow: auto; max-height: 34rem; } .scroll:has(.plain), .tall { max-height: none; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { text-align: right; padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 600; position: sticky; top: 0; background: #fff; }
th:first-child, td:first-child { text-align: left; }
table.plain td { text-align: left; white-space: normal; }
table.numbers td:not(:first-child) { text-align: right; white-space: nowrap; }
@media print { .scroll { max-height: none; } }
"""


def write_report(folder: RunFolder) -> Path:
    """Write ``report.html`` into a run folder that has its results; gives its path.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.experiments import RunFolder, Settings, train
    >>> from spdnet.report import write_report
    >>> settings = Settings(data="digits", epochs=1, dims=(17, 8), device="cpu", baseline=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = train(settings, RunFolder(f"{folder}/run"))
    ...     write_report(RunFolder(f"{folder}/run")).name
    'report.html'
    """
    write(folder.report_file, make_page(folder))
    return folder.report_file


def make_page(folder: RunFolder) -> str:
    """The report of a run, or of its repeats, as one HTML page without links to anywhere.

    Examples
    --------
    >>> import tempfile
    >>> from spdnet.experiments import RunFolder, Settings, train
    >>> from spdnet.report import make_page
    >>> settings = Settings(data="digits", epochs=1, dims=(17, 8), device="cpu", baseline=False)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = train(settings, RunFolder(f"{folder}/run"))
    ...     make_page(RunFolder(f"{folder}/run"))[:15]
    '<!doctype html>'
    """
    found = folder.results()
    name = folder.path.resolve().name
    make_body = _repeats if "seeds" in found else _one_run
    folder.settings(), folder.environment(), folder.metrics()  # say for themselves what is wrong
    try:
        return document(f"{name}: {found['network']}", make_body(folder, found, name))
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ValueError(
            f"report: expected the results of a run in {folder.results_file}, got something else: "
            f"{error!r}"
        ) from error


def document(title: str, body: str) -> str:
    """A page by itself; what no page may hold, such as control characters, is written out."""
    page = (
        "<!doctype html>\n"
        '<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_CSS}</style></head>\n"
        f"<body>\n{body}\n</body></html>\n"
    )
    return printable(page, keep="\n")


def _one_run(folder: RunFolder, found: dict[str, Any], name: str) -> str:
    history, scored = folder.metrics(), found["scored"]
    base = found["baseline"]
    accuracy = found["parts"][scored]["accuracy"]
    tiles = [(f"{PARTS[scored]} accuracy", f"{100 * accuracy:.2f} %")]
    if base:
        linear = base["accuracy"][scored]
        tiles.append((base["name"], f"{100 * linear:.2f} %"))
        if scored != "train":
            tiles.append(("gain of the network, points", f"{100 * (accuracy - linear):+.2f}"))
    tiles += [
        *_chance(found),
        ("classes", str(len(found["classes"]))),
        ("training", _duration(found["seconds"]["training"])),
    ]
    grouped = all("groups" in s for s in found["parts"].values())
    score_rows = [
        (
            PARTS[part],
            s["n"],
            f"{100 * s['accuracy']:.2f} %",
            f"{s['loss']:.4f}",
            f"{100 * base['accuracy'][part]:.2f} %" if base else "-",
            *([s["groups"]] if grouped else []),
        )
        for part, s in found["parts"].items()
    ]
    head = ("part", "matrices", "accuracy", "loss", "baseline", *(["groups"] if grouped else []))
    seconds = found["seconds"]
    notes = list(found["notes"])
    if base and not base["converged"]:
        notes.append("the baseline had not converged when its iterations were used up")
    return "\n".join(
        [
            f"<h1>{escape(name)}</h1>",
            f'<p class="soft">{_network(found)}, {found["parameters"]:,} parameters, '
            f"best epoch {found['best_epoch']} of {found['epochs']}</p>",
            _data(found),
            _tiles(tiles),
            *(f'<p class="note">{escape(note)}</p>' for note in notes),
            table(head, score_rows),
            section(
                "Learning curves",
                "Loss and accuracy of the training batches as they were seen.",
                '<div class="pictures wide">'
                + "".join(figures.learning_curves(history, found["best_epoch"]))
                + "</div>",
            ),
            _confusion(found),
            _per_class(found),
            _spectra(found),
            section(
                "Orthonormality of the weights",
                "The largest entry of |WᵀW - I|: rounding, if the optimiser stays on the manifold.",
                table(
                    ("weight", "shape", "largest |WᵀW - I|"),
                    [
                        (row["layer"], " x ".join(map(str, row["shape"])), f"{row['gap']:.1e}")
                        for row in found["orthonormality"]
                    ],
                ),
            ),
            section(
                "Time",
                "",
                table(
                    ("", ""),
                    [
                        *((what, f"{s:.2f} s") for what, s in seconds.items()),
                        ("an epoch", f"{seconds['training'] / max(found['epochs'], 1):.3f} s"),
                        ("matrices a second", f"{found['matrices_per_second']:,.0f}"),
                    ],
                ),
            ),
            _context(folder),
        ]
    )


def _repeats(folder: RunFolder, found: dict[str, Any], name: str) -> str:
    scored, accuracy, base = found["scored"], found["accuracy"], found["baseline"]
    same = found.get("structure", "")
    tiles = [(f"{PARTS[scored]} accuracy, mean", _spread(accuracy))]
    linear = base["accuracy"]["values"] if base else None
    if base:
        tiles.append((base["name"], _spread(base["accuracy"])))
        gain = 100 * (accuracy["mean"] - base["accuracy"]["mean"])
        tiles.append(("gain of the network, points", f"{gain:+.2f}"))
    tiles += _chance(found)
    tiles.append(("training of one", _duration(found["seconds"]["mean"])))
    rows = [
        (
            seed,
            f"{100 * accuracy['values'][i]:.2f} %",
            f"{100 * linear[i]:.2f} %" if linear else "-",
            f"{found['seconds']['values'][i]:.1f}",
        )
        for i, seed in enumerate(found["seeds"])
    ]
    return "\n".join(
        [
            f"<h1>{escape(name)}</h1>",
            f'<p class="soft">{_network(found)}, {len(found["seeds"])} repeats; '
            "± is the standard deviation over the repeats</p>",
            _data(found, "The first repeat: "),
            _tiles(tiles),
            *(f'<p class="note">{escape(note)}</p>' for note in found["notes"]),
            *([f"<p>In every repeat {escape(same)}.</p>"] if same else []),
            section(
                "Repeats",
                "Each has its own folder, seed-*, with its own report.",
                figures.repeats(accuracy["values"], linear, found["seeds"], found["network"])
                + table(("seed", "accuracy", "baseline", "seconds"), rows),
            ),
            _confusion(found),
            _context(folder),
        ]
    )


def _confusion(found: dict[str, Any]) -> str:
    return section(
        "Confusion",
        f"True classes in rows, predicted ones in columns; {PARTS[found['scored']]} part. The "
        "shade is the share of the row.",
        '<div class="scroll tall">'
        + figures.confusion(found["confusion"], found["classes"])
        + "</div>",
    )


def _per_class(found: dict[str, Any]) -> str:
    rows = [
        (row["class"], row["n"], *(_percent(row[key]) for key in ("precision", "recall", "f1")))
        for row in found["per_class"]
    ]
    head = ("class", "matrices", "precision", "recall", "F1")
    return section("Classes", "", table(head, rows))


def _spectra(found: dict[str, Any]) -> str:
    clipped = [
        f"{entry['layer']} raised {percent(entry['clipped'])} of the eigenvalues"
        for entry in found["spectra"]
        if "clipped" in entry
    ]
    meaning = structure(found)
    text = " ".join(
        [
            "Eigenvalues in descending order: median, and the band from 5 to 95 percent of the "
            "matrices.",
            *([f"{'; '.join(clipped)}."] if clipped else []),
            *([f"{meaning[:1].upper()}{meaning[1:]}."] if meaning else []),
        ]
    )
    pictures = "".join(figures.spectrum(entry) for entry in found["spectra"])
    return section("Spectra, layer by layer", text, f'<div class="pictures">{pictures}</div>')


def _context(folder: RunFolder) -> str:
    environment = dict(folder.environment())
    libraries = environment.pop("libraries")
    environment |= libraries
    settings = folder.settings().as_dict()
    return section("Settings", "", plain(settings)) + section("Environment", "", plain(environment))


def section(title: str, text: str, content: str) -> str:
    """A part with a heading."""
    paragraph = f'<p class="soft">{escape(text)}</p>' if text else ""
    return f"<section><h2>{escape(title)}</h2>{paragraph}{content}</section>"


def _tiles(tiles: Iterable[tuple[str, str]]) -> str:
    cells = [
        f'<div class="tile{" first" if i == 0 else ""}"><b>{escape(value)}</b>{escape(what)}</div>'
        for i, (what, value) in enumerate(tiles)
    ]
    return f'<div class="tiles">{"".join(cells)}</div>'


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], kind: str = "") -> str:
    """Rows below a heading."""
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    top = f"<thead><tr>{titles}</tr></thead>" if any(head) else ""
    lines = "".join(
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    table = f'<table class="{kind}">{top}<tbody>{lines}</tbody></table>'
    return f'<div class="scroll">{table}</div>'


def plain(values: dict[str, Any]) -> str:
    """Names and values."""
    rows = [
        (key, ", ".join(map(str, v)) if isinstance(v, (list, tuple)) else v)
        for key, v in values.items()
        if v is not None
    ]
    return table(("", ""), rows, "plain")


def _network(found: dict[str, Any]) -> str:
    return escape(f"{found['network']}: {' → '.join(map(str, found['dims']))}")


def _data(found: dict[str, Any], before: str = "") -> str:
    """How much of what was divided how; runs of earlier versions do not tell."""
    return f'<p class="soft">{escape(before + found["data"])}</p>' if found.get("data") else ""


def _chance(found: dict[str, Any]) -> list[tuple[str, str]]:
    if "chance" not in found:  # in runs of earlier versions
        return []
    return [("always the largest class", f"{100 * found['chance']:.2f} %")]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _spread(values: dict[str, Any]) -> str:
    return f"{100 * values['mean']:.2f} ± {100 * values['deviation']:.2f} %"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
