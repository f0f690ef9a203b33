from pathlib import Path

from tests import marks


def test_few_lines_are_left_out_of_coverage_and_each_says_why() -> None:
    found = list(marks.marks())
    assert len(found) <= marks.MOST
    assert [mark.place for mark in found if not mark.reason] == []


def test_a_mark_without_a_reason_is_seen(tmp_path: Path) -> None:
    (tmp_path / "some.py").write_text("a = 1\nb = 2  # pragma: no cover\nc = 3  # pragma: no branch  # never 4\n")
    assert list(marks.marks(tmp_path)) == [("some.py:2", ""), ("some.py:3", "never 4")]
