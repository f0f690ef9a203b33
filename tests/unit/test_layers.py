"""Arrows point one way, type-only imports too: {main, cli, sync} → bootstrap → {web, gcp, embedded, metrics} → {votes,
tasks} → message_limits → ports → the small roots. Read from the source, so that an import inside a function counts too.
"""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

FUNCTIONS = Path(__file__).parents[2] / "functions"
ROOTS = {"errors", "clock", "collector", "retry", "limits", "config", "logs", "finding", "environment"}
LAYERS: list[set[str]] = [
    ROOTS,
    {"ports"},
    {"message_limits"},
    {"votes", "tasks"},
    {"web", "gcp", "embedded", "metrics"},
    {"bootstrap"},
    {"cli", "main", "sync"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
# Parts of one layer may not import each other, unless named here.
NEIGHBOURS = {(a, b) for a in ROOTS for b in ROOTS}
# Beside the layers: it plays the ports' other side, and nothing that is deployed imports it.
TESTING = "testing"


def modules() -> dict[str, Path]:
    """Return every module below functions/ by its dotted name."""
    found = {}
    for path in FUNCTIONS.rglob("*.py"):
        parts = path.relative_to(FUNCTIONS).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@cache
def imports(module: str) -> frozenset[str]:
    """Return the dotted names that a module imports, anywhere in it."""
    return frozenset(_imports(module))


def _imports(module: str) -> Iterator[str]:
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base


def part(module: str) -> str | None:
    """Return the part of Tally that a module belongs to; None for others and for the bare package."""
    names = module.split(".")
    if names == ["main"]:
        return "main"
    return names[1] if names[0] == "tally" and len(names) > 1 else None


def allowed(importer: str, imported: str) -> bool:
    if TESTING in (importer, imported):
        return importer == TESTING and imported not in ("bootstrap", "cli", "main")
    return importer == imported or RANK[importer] > RANK[imported] or (importer, imported) in NEIGHBOURS


ARROWS = sorted(
    {
        (importer, imported)
        for module in MODULES
        for name in imports(module)
        if (importer := part(module)) is not None and (imported := part(name)) is not None
    }
)


@pytest.mark.parametrize("importer", sorted({importer for importer, _ in ARROWS}))
def test_a_part_imports_only_what_lies_below_it(importer: str) -> None:
    wrong = {
        (module, name)
        for module in MODULES
        if part(module) == importer
        for name in imports(module)
        if (imported := part(name)) is not None and not allowed(importer, imported)
    }
    assert not wrong


def test_every_part_has_its_layer() -> None:
    assert {name for arrow in ARROWS for name in arrow} - {TESTING} <= RANK.keys()


def test_there_is_no_import_cycle_among_modules() -> None:
    graph = {module: {name for name in imports(module) if name in MODULES and name != module} for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"cycle: {' → '.join(error.args[1])}")


def test_only_the_google_backend_imports_googles_libraries() -> None:
    users = {
        part(module)
        for module in MODULES
        for name in imports(module)
        if name.split(".")[0] in ("google", "grpc", "grpc_status")
    }
    assert users <= {"gcp"}


def test_the_check_sees_what_it_should() -> None:
    assert ("votes", "ports") in ARROWS
    assert not allowed("votes", "tasks")
    assert not allowed("ports", "votes")
    assert not allowed("web", "gcp")
    assert not allowed("cli", TESTING)
    assert "tally.gcp" not in imports("tally.votes.intake")


def test_no_limit_is_defined_twice() -> None:
    """The second would take the first one's place without a word."""
    tree = ast.parse(MODULES["tally.limits"].read_text(encoding="utf-8"))
    names = [
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    assert sorted(names) == sorted(set(names))
