import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spdnet.data import DataError
from spdnet.data.io import tables
from spdnet.data.io.tables import parse_table

GOOD = {
    "commas": b"1,2\n3,4",
    "commas and blanks": b" 1 , 2 \n3, 4\n",
    "semicolons": b"1;2\n3;4\n\n \n",
    "tabs": b"1\t2\r\n3\t4\r\n",
    "blanks": b"  1   2\n 3 4",
    "old ends of lines": b"1,2\r3,4\r",
    "a header": b"Fz,Cz\n1,2\n3,4",
    "a header in quotes": b'"Fz","Cz"\n1,2\n3,4',
    "a header with blanks": b"Fz Cz\n1 2\n3 4",
    "remarks and a header": b"# from numpy.savetxt\n# at 128 Hz\nFz,Cz\n1,2\n3,4",
    "a mark of UTF-8": b"\xef\xbb\xbf1,2\n3,4",
    "separators at the end": b"1,2,\n3,4,\n",
    "tabs at the end": b"1\t2\t\n3\t4\t\n",
    "exponents": b"1e0,.2E+1\n+3.,0.4e1",
}


@pytest.mark.parametrize("case", GOOD)
def test_forms_of_one_table(case):
    table = parse_table(GOOD[case], "a.csv")
    assert table.dtype == np.float64
    np.testing.assert_array_equal(table, [[1, 2], [3, 4]])


def test_one_number_and_what_is_not_finite():
    assert parse_table(b"5", "a.txt").tolist() == [[5]]
    table = parse_table(b"1,nan\n-inf,1e999", "a.csv")
    assert np.isfinite(table).tolist() == [[True, False], [False, False]]


BAD = {
    "nothing": (b"", "got no lines of numbers"),
    "blank": (b"\n \n", "got no lines of numbers"),
    "remarks": (b"# a\n# b", "got no lines of numbers"),
    "a header alone": (b"a,b\n", "numbers below line 1 of a.csv, 'a,b', got none"),
    "prose": (b"not data", "numbers below line 1 of a.csv"),
    "two headers": (b"a,b\nuV,uV\n1,2", "line 2, column 1 of a.csv, got 'uV'"),
    "a gap": (b"1,2\n\n3,4", "got none on line 2"),
    "a hole": (b"1,2\n3,\n5,6", "line 2, column 2 of a.csv, got ''; write nan"),
    "a word": (b"a,b\n1,2\n3,x\n", "line 3, column 2 of a.csv, got 'x'"),
    "a remark inside": (b"1,2\n#x,1\n", "line 2, column 1 of a.csv, got '#x'"),
    "a short line": (b"1,2\n3\n", "2 numbers between commas .*line 1, got 1 on line 2"),
    "a long line": (b"1 2\n3 4 5\n", "2 numbers between blanks .*got 3 on line 2"),
    "decimal commas": (b"a;b\n1,5;2,5\n", "got '1,5'; write decimals with a point"),
    "decimal commas first": (b"1,5;2,5\n1,5;2,5\n", "write decimals with a point"),
    "a slip in the first line": (b"1.O,2\n3,4", "either names or numbers in line 1 .*'1.O'"),
    "slips in the first line": (b"1.O,2.O\n3,4", "either names or numbers in line 1"),
    "names of rows": (b",a,b\nx,1,2\ny,3,4", "line 2, column 1 of a.csv, got 'x'"),
    "the index of pandas": (b",a\n0,.1\n1,.2\n2,.1", "got '' in the first column; remove it"),
    "the columns of pandas": (b"0,1,2\n.1,.2,.3", "line 1 of a.csv, got column numbers"),
    "both of pandas": (b",0,1\n0,.1,.2", r"to_csv\(file, header=False, index=False\)"),
    "time": (b"time,a\n0.0,5\n0.1,6\n0.2,3\n", "got 'time' in the first column; remove it"),
    "time in quotes": (b'"Time (s)",a\n0,5\n1,6\n2,3\n', "first column; remove it"),
    "UTF-16": ("1,2\n".encode("utf-16"), "UTF-16; save it as UTF-8"),
    "Latin": (b"1,2\n\xe9,4", "UTF-8, but line 2 of a.csv is not"),
    "zeros": (b"1\x00,2\n3,4", "names or numbers"),
    "bytes": (bytes(range(256)), "UTF-8"),
    "underscores": (b"1,2\n1_0,2", "got '1_0'"),
    "other digits": ("1,2\n\u0661,2".encode(), "line 2, column 1"),
    "hexadecimal": (b"1,2\n0x10,2", "got '0x10'"),
    "complex": (b"1,2\n1+2j,2", r"got '1\+2j'"),
    "formulas": (b"1,2\n=1+1,2", r"got '=1\+1'"),
    "a long word": (b"1,2\n" + b"x" * 10**5, r"got 'x{40}\.\.\.'$"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_table_is_refused_with_its_line(case):
    data, message = BAD[case]
    with pytest.raises(DataError, match=message) as found:
        parse_table(data, "a.csv")
    assert len(str(found.value)) < 300


def test_size_is_limited(monkeypatch):
    monkeypatch.setattr(tables, "LARGEST", 10)
    assert parse_table(b"1,2,3,4,5\n", "a.csv").shape == (1, 5)
    with pytest.raises(DataError, match=r"at most 10 bytes .*got 12; save it with numpy.save"):
        parse_table(b"1,2,3,4,5,6\n", "a.csv")


def test_columns_that_count_something_else_stay():
    rising = b"x,a\n0,5\n1,6\n2,3\n"  # a name that is no clock's
    assert parse_table(rising, "a.csv").shape == (3, 2)
    assert parse_table(b"t0,t1\n0,5\n1,6\n2,3\n", "a.csv").shape == (3, 2)  # samples
    assert parse_table(b"time,a\n0,5\n1,6\n5,3\n", "a.csv").shape == (3, 2)  # does not rise evenly
    assert parse_table(b"0,1,2\n3,4,5", "a.csv").shape == (2, 3)  # whole numbers throughout


TIMES = np.arange(50) / 256
DATA = np.random.default_rng(0).normal(size=(50, 3))


def as_pandas(names, columns, header, index):
    """The text that ``DataFrame.to_csv`` writes."""
    rows = [[*([i] if index else []), *row] for i, row in enumerate(zip(*columns, strict=True))]
    head = [[*([""] if index else []), *names]] if header else []
    return "\n".join(",".join(map(str, row)) for row in [*head, *rows]) + "\n"


@pytest.mark.parametrize("header", [True, False])
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("times", ["time", "time_s", "Time [ms]", "t", "timestamps"])
def test_time_down_the_rows(header, index, times):
    clock = (TIMES.round(3) if header else TIMES).tolist()
    names, columns = [times, "Fz", "Cz", "Pz"], [clock, *DATA.T.tolist()]
    text = as_pandas(names, columns, header, index)
    with pytest.raises(
        DataError, match="remove it and transpose, since rows are channels"
    ) as found:
        parse_table(text.encode(), "a.csv")
    read = "pandas.read_csv(file)" if header else "pandas.read_csv(file, header=None)"
    advice = f"{read}.iloc[:, {1 + index}:].T.to_csv(file, header=False, index=False)"
    assert str(found.value).endswith(advice)
    mended = as_pandas([], DATA.tolist(), header=False, index=False)
    np.testing.assert_array_equal(parse_table(mended.encode(), "a.csv"), DATA.T)


def test_an_index_of_channels():
    lines = "\n".join(f"{i}," + ",".join(map(str, row)) for i, row in enumerate(DATA.T))
    with pytest.raises(DataError, match=r"first column; remove it: .*\.iloc\[:, 1:\]\.to_csv"):
        parse_table(lines.encode(), "a.csv")


@pytest.mark.parametrize(
    "table",
    [
        DATA,
        DATA.T,
        np.arange(60.0).reshape(20, 3),  # all columns rise evenly
        np.arange(1.0, 37).reshape(6, 6),  # square
        np.column_stack([np.sort(DATA[:, 0]), DATA]),  # rises, but not evenly
        np.column_stack([np.arange(8) / 10, DATA[:8]]),  # few rows
    ],
)
def test_tables_without_times_are_read(table):
    text = "\n".join(",".join(map(repr, row)) for row in table.tolist())
    np.testing.assert_array_equal(parse_table(text.encode(), "a.csv"), table)


@given(
    values=st.lists(
        st.lists(st.floats(-1e300, 1e300), min_size=3, max_size=3), min_size=1, max_size=5
    ),
    separator=st.sampled_from([",", ";", "\t", " "]),
)
def test_every_number_comes_back(values, separator):
    text = "a b c\n".replace(" ", separator)
    text += "\n".join(separator.join(map(repr, row)) for row in values)
    np.testing.assert_array_equal(parse_table(text.encode(), "a.csv"), values)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_table_or_our_error(data):
    try:
        table = parse_table(data, "a.csv")
    except DataError:
        return
    assert table.ndim == 2
    assert table.size > 0


@given(st.text(alphabet="0123456789.,;\t \n\r-+e#anif\"'", max_size=60))
def test_any_text_is_a_table_or_our_error(text):
    try:
        table = parse_table(text.encode(), "a.csv")
    except DataError:
        return
    lines = [line for line in text.replace("\r", "\n").split("\n") if line.strip()]
    remarks = sum(line.startswith("#") for line in lines)
    assert len(lines) - remarks - 1 <= len(table) <= len(lines) - remarks


@pytest.mark.parametrize("line", ["NA,NA,NA", "--,--,--", "null,null,null", "N/A,NA,-nan(ind)"])
def test_a_first_line_of_missing_values_is_no_line_of_names(line):
    with pytest.raises(DataError, match="write nan for what is missing"):
        parse_table(f"{line}\n1,2,3\n4,5,6\n".encode(), "f.csv")


@pytest.mark.parametrize("text", ["Fz\n1,5\n2,5\n", "a,b,c\n1,2\n3,4\n", "a;b;c\n1,2\n"])
def test_as_many_names_as_columns(text):
    with pytest.raises(DataError, match="as many numbers as names"):
        parse_table(text.encode(), "f.csv")
