"""Answers of a server beside those of `leat score`."""


def plain(row):
    """An answer of `leat score` as rows_of has one: texts of numbers, no nulls, no lists, no times."""
    return {name: value for name, value in row.items()
            if value is not None and not isinstance(value, list) and name not in ("_late", "_status", "_step", "_reason")}


def same(name, served, scored):
    """Whether a served value is the scored one; both numbers are texts, unless they are integers of JSON."""
    return str(served).lower() == str(scored).lower() or name == "ts"


def compare(rows, scored):
    """rows: of rows_of; scored: of Place.score, for the same requests."""
    assert len(rows) == len(scored), (len(rows), len(scored))
    for number, (row, wanted) in enumerate(zip(rows, scored)):
        status = row.pop("_status", "answered")
        expected = wanted.get("_status") or ("late" if "_late" in wanted else "answered")
        assert status == expected, f"row {number}: {status}, scored {wanted}"
        if "_status" in wanted:
            continue
        for name, value in plain(wanted).items():
            assert name in row and same(name, row[name], value), f"row {number}, `{name}`: {row.get(name)}, scored {value}"
        assert set(row) <= set(plain(wanted)) | {"ts"}, (number, sorted(row), sorted(wanted))
