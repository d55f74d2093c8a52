"""Sphinx configuration; the build runs offline and generates all outputs and figures."""

import inspect
import os
import re
import sys
from importlib.metadata import version as version_of
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
os.environ["OMP_NUM_THREADS"] = "1"  # small matrices, here and in child processes

import commands  # noqa: E402
import outputs  # noqa: E402
import pictures  # noqa: E402
from docutils import nodes  # noqa: E402

from spdnet.manifolds import Metric  # noqa: E402

pictures.make(HERE / "_made")
commands.make(HERE / "_made")
outputs.make(HERE, HERE / "_made" / "outputs")

project = "spdnet"
author = "The spdnet developers"
copyright = author  # noqa: A001
version = release = version_of("spdnet")

extensions = [
    "mathml",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_made/**", "gallery/**/README*"]
nitpicky = True

# pages

myst_enable_extensions = ["amsmath", "attrs_block", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

# theme

html_theme = "furo"
html_title = "spdnet"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/icon.svg"
html_extra_path = ["_made/site"]
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1d4ed8", "color-brand-content": "#1d4ed8"},
    "dark_css_variables": {"color-brand-primary": "#93c5fd", "color-brand-content": "#93c5fd"},
}
pygments_style = "friendly"
pygments_dark_style = "monokai"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# API reference

autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
    "exclude-members": "Fabric",  # belongs to Lightning
}
autodoc_inherit_docstrings = False  # skip those of torch and scikit-learn
autodoc_typehints = "none"  # types are in the docstrings
autosummary_generate = False
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# gallery

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "image_srcset": ["2x"],
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "within_subsection_order": "FileNameSortKey",
    "write_computation_times": False,
}

#: top-level names and the modules that document them
HOMES = {
    "spdnet.SPDNet": "spdnet.models.SPDNet",
    "spdnet.SPDNetClassifier": "spdnet.estimator.SPDNetClassifier",
}
EXTERNAL = {
    "numpy": "https://numpy.org/doc/stable/reference/generated/{}.html",
    "sklearn": "https://scikit-learn.org/stable/modules/generated/{}.html",
    "torch": "https://docs.pytorch.org/docs/stable/generated/{}.html",
}


def resolve_external(app, env, node, contnode):
    """Resolve top-level names and names of other libraries."""
    name = node.get("reftarget", "")
    for short, home in HOMES.items():
        if name == short or name.startswith(f"{short}."):
            node["reftarget"] = home + name[len(short) :]
            domain = env.get_domain("py")
            return domain.resolve_xref(
                env, node["refdoc"], app.builder, node["reftype"], node["reftarget"], node, contnode
            )
    url = EXTERNAL.get(name.partition(".")[0])
    if url is None or node.get("refdomain") != "py":
        return None
    return nodes.reference("", "", contnode, internal=False, refuri=url.format(name))


def add_summary(app, what, name, obj, options, lines):
    """Append a summary table of the public names to a module docstring."""
    if what != "module":
        return
    public = getattr(obj, "__all__", None)
    if public is None:
        public = [
            key
            for key, value in vars(obj).items()
            if not key.startswith("_") and getattr(value, "__module__", None) == name
        ]
    public = [n for n in public if n != "Fabric" and callable(getattr(obj, n))]
    for i, line in enumerate(lines):  # section headings are not allowed inside a page
        if i and re.fullmatch("-{3,}", line):
            lines[i - 1 : i + 1] = [f".. rubric:: {lines[i - 1]}", ""]
    if public:
        names = [f"   {n}" for n in sorted(public, key=str.lower)]
        lines += ["", ".. autosummary::", "   :nosignatures:", "", *names, ""]


def inherit_parameters(app, what, name, obj, options, lines):
    """Append the parameters that a method of a metric shares with the method it overrides."""
    kind = getattr(sys.modules.get(getattr(obj, "__module__", "")), name.split(".")[-2], None)
    if what != "method" or not (isinstance(kind, type) and issubclass(kind, Metric)):
        return
    for base in kind.__mro__[1:]:
        text = inspect.getdoc(vars(base).get(name.split(".")[-1])) or ""
        if "Parameters" not in lines and "\nParameters\n" in text:
            text = text[text.index("\nParameters\n") :].partition("\nExamples\n")[0]
            lines += ["", *text.strip().splitlines(), ""]


def skip_foreign(app, what, name, obj, skip, options):
    """Skip named-tuple fields and methods that scikit-learn generates."""
    ours = not str(getattr(obj, "__doc__", "")).startswith("Alias for field")
    return None if ours and not re.fullmatch(r"set_\w+_request", name) else True


def insert_outputs(app, docname, source):
    """Insert the output of each code block below it."""
    source[0] = outputs.insert(HERE / "_made" / "outputs", docname, source[0])


def rewrite_links(app, docname, source):
    """Rewrite links to repository files as links to pages of the site."""
    up = "(" + "../" * (docname.count("/") + 1)
    text = source[0].replace(f"{up}examples/README.md", "(/gallery/index.rst")
    text = re.sub(re.escape(f"{up}examples/") + r"(\w+)\.py", r"(/gallery/\1.rst", text)
    for name in ("CHANGELOG", "CONTRIBUTING", "benchmarks/NOTES"):
        text = text.replace(f"{up}{name}.md", f"(/{name.rpartition('/')[2].lower()}.md")
    source[0] = text


def setup(app):
    """Connect the event handlers."""
    app.connect("missing-reference", resolve_external)
    app.connect("autodoc-process-docstring", inherit_parameters, priority=100)  # before numpydoc
    app.connect("autodoc-process-docstring", add_summary, priority=900)
    app.connect("autodoc-skip-member", skip_foreign)
    app.connect("source-read", insert_outputs)
    app.connect("source-read", rewrite_links)
    return {"parallel_read_safe": True}
