"""The README's tables of settings and limits, made from the code: `python -m tests.readme` writes them into it."""

import re
from pathlib import Path

from tally import config, limits

README = Path(__file__).parent.parent / "README.md"


def settings_table() -> str:
    rows = ["| variable | default | meaning |", "|--|--|--|"]
    for variable in config.VARIABLES:
        default = f"`{variable.default}`" if variable.default else ""
        rows.append(f"| `{variable.name}` | {default} | {variable.meaning} |")
    return "\n".join(rows)


def limits_table() -> str:
    rows = ["| limit | value | bounds |", "|--|--|--|"]
    rows += [f"| `{name}` | {limit:,} {limit.unit} | {limit.bounds} |" for name, limit in limits.TABLE.items()]
    return "\n".join(rows)


def with_tables(text: str) -> str:
    """Return the README's text with the tables between its markers as they should be."""
    for name, table in (("settings", settings_table()), ("limits", limits_table())):
        marked = re.compile(rf"(<!-- {name}: [^>]*-->\n).*?(\n<!-- /{name} -->)", re.DOTALL)
        text, places = marked.subn(rf"\g<1>{table.replace(chr(92), chr(92) * 2)}\g<2>", text)
        if places != 1:
            raise ValueError(f"README.md: want one pair of markers for {name}, found {places}")
    return text


if __name__ == "__main__":
    README.write_text(with_tables(README.read_text(encoding="utf-8")), encoding="utf-8")
