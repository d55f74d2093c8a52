"""Results are read as they were written, and other contents are refused by name."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from spdnet.runs import RunFolder, train
from spdnet.runs.record import Record, text_table
from spdnet.runs.results import RepeatResults, Spread
from tests.runs.test_train import file_of, quick


@dataclass(frozen=True)
class Inner(Record):
    label: str = field(metadata={"key": "class"})
    share: float | None = None


@dataclass(frozen=True)
class Outer(Record):
    n: int
    parts: dict[Literal["train", "test"], Inner]
    values: tuple[float | None, ...] = ()
    more: Any = None


GOOD = {"n": 3, "parts": {"test": {"class": "a", "share": 1}}, "values": [0.5, None], "more": {}}


def test_a_record_and_its_json(tmp_path):
    record = Outer.from_json(json.loads(json.dumps(GOOD)))
    assert record == Outer(3, {"test": Inner("a", 1.0)}, (0.5, None), {})
    record.write(tmp_path / "new" / "a.json")
    assert Outer.load(tmp_path / "new" / "a.json", "") == record
    assert isinstance(record.parts["test"].share, float)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": True}, "expected an integer in results.n, got True"),
        ({"n": 3.0}, "expected an integer in results.n"),
        ({"parts": {"val": {"class": "a"}}}, "expected one of .*'train', 'test'"),
        ({"parts": {"test": {"class": 1}}}, "expected text in results.parts.test.class"),
        ({"parts": {"test": {}}}, "expected a field 'class' in results.parts.test, got none"),
        ({"parts": []}, "results.parts"),
        ({"values": [0.5, float("nan")]}, r"a finite number in results.values\[1\], got nan"),
        ({"values": [10**400]}, "a finite number"),
        ({"other": 1}, "expected no field 'other' in results"),
    ],
    ids=str,
)
def test_other_contents_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        Outer.from_json({**GOOD, **changes})


def test_the_file_is_named(tmp_path):
    folder = RunFolder(tmp_path / "run")
    found = train(quick(file_of(tmp_path), epochs=1), folder)
    assert folder.results() == found
    values = found.to_json()
    values["parts"]["test"]["accuracy"] = "high"
    folder.results_file.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"run/results\.json: .*results\.parts\.test\.accuracy"):
        folder.results()
    assert RepeatResults.of([found, found], [0, 1]).accuracy == Spread.of([found.accuracy] * 2)


def test_the_columns_of_a_table_are_aligned():
    rows = text_table(["", "s"], [["CDL", "1.5"], ["RSR", "12"]])
    assert rows == ["       s", "CDL  1.5", "RSR   12"]
