"""Render formulas as MathML, which browsers display without scripts."""

import re

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml


def setup(app):
    """Register the renderer ``mathml``."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def mathml(text, **settings):
    """Convert a formula, correcting fractions and operator spacing of docutils."""
    # docutils requires braces around single-character arguments of a fraction
    text = re.sub(r"\\([tdc]?frac)\s*(\w)\s*(\w)", r"\\\1{\2}{\3}", text)
    # docutils renders max as an operator, which browsers separate from its bracket
    return tex2mathml(text, **settings).replace(
        "<mo>max</mo>", '<mo lspace="0.17em" rspace="0">max</mo>'
    )


def inline(writer, node):
    """Write an inline formula."""
    writer.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def block(writer, node):
    """Write a display formula with its number, if any."""
    text = node.astext().strip()
    if r"\\" in text and r"\begin" not in text:
        text = rf"\begin{{aligned}}{text}\end{{aligned}}"
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    writer.body.append(mathml(text, as_block=True))
    if node["number"]:
        writer.body.append(f'<span class="number">({node["number"]})</span>')
    writer.body.append("</div>\n")
    raise nodes.SkipNode
