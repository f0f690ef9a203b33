from tests import readme


def test_the_tables_are_those_of_the_code() -> None:
    text = readme.README.read_text(encoding="utf-8")
    assert text == readme.with_tables(text), "run: python -m tests.readme"
