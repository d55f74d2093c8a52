"""Below each block of a page, what it printed when the site was built."""

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from blocks import Session, blocks
from pictures import sources

#: pages whose blocks make all that they use
PAGES = ("start", "concepts", "mathematics", "guide/*")


def make(docs, place):
    """Run the pages, and write what their blocks printed below a folder; known ones stay."""
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
    """Of a page and of all the code behind it."""
    return hashlib.sha256(sources() + page.read_bytes()).hexdigest()


def insert(place, docname, text):
    """The text of a page with the outputs put in."""
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
    """Without most of the epochs of a training."""
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
    """What each block of a page prints, by its line."""
    session = Session()
    return {b.line: session.run(b) for b in blocks(page.read_text()) if not b.skipped}


if __name__ == "__main__":
    json.dump(printed_by(Path(sys.argv[1])), sys.stdout)
