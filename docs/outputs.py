"""Insert the output of each code block below it when the site is built."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from blocks import Session, blocks
from pictures import sources

#: pages whose blocks need no other files
PAGES = ("start", "concepts", "mathematics", "guide/*")


def make(docs, place):
    """Run the pages that changed and write the output of their blocks to a folder."""
    place.mkdir(exist_ok=True)
    for page in sorted(page for name in PAGES for page in docs.glob(f"{name}.md")):
        known = stamp(page)
        file = place / f"{page.relative_to(docs).with_suffix('').as_posix().replace('/', '-')}.json"
        if file.is_file() and json.loads(file.read_text())["stamp"] == known:
            continue
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, Path(__file__).resolve(), page.resolve()],
                cwd=folder,
                capture_output=True,
                text=True,
                check=False,
                env=os.environ | {"MPLBACKEND": "agg"},
            )
        if done.returncode != 0:
            raise RuntimeError(f"{page}: {done.stderr}")
        file.write_text(json.dumps({"stamp": known, "printed": json.loads(done.stdout)}))


def stamp(page):
    """Return a hash of a page and of all code it depends on."""
    return hashlib.sha256(sources() + page.read_bytes()).hexdigest()


def insert(place, docname, text):
    """Return the text of a page with the outputs inserted."""
    file = place / f"{docname.replace('/', '-')}.json"
    if not file.is_file():
        return text
    found = json.loads(file.read_text())["printed"]
    for block in reversed(blocks(text)):
        printed = found.get(str(block.line))
        if printed:
            lines = f"\n\n{{.output}}\n```text\n{shortened(printed)}```\n"
            text = text[: block.end] + lines + text[block.end :]
    return text


def shortened(text):
    """Shorten a training log to its first and last epochs."""
    kept, epochs = [], 0
    lines = text.rstrip().splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        epochs = epochs + 1 if line.startswith("epoch") else 0
        if epochs <= 3 or not following.startswith("epoch"):
            kept.append(line.rstrip())
        elif epochs == 4:
            kept.append("...")
    return "\n".join(kept) + "\n"


def printed_by(page):
    """Run a page and return the output of each block by its line."""
    session = Session()
    return {b.line: session.run(b) for b in blocks(page.read_text()) if not b.skipped}


if __name__ == "__main__":
    json.dump(printed_by(Path(sys.argv[1])), sys.stdout)
