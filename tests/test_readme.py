"""The README's Python runs as it stands."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_every_block_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, str(README), "exec"), {"__name__": "__main__"})
    out = capsys.readouterr().out
    assert float(re.search(r"loss ([\d.]+)", out)[1]) < 0.3
    assert float(re.search(r"accuracy ([\d.]+)", out)[1]) > 0.97
