"""What is deployed: the same tree gives the same bytes, and nothing else is in them."""

import os
import shutil
import zipfile
from pathlib import Path

import pytest

from infra import package
from tests.infra.terraform import ROOT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of our own: the test can change it."""
    root = tmp_path / "tree"
    for name in ("functions/main.py", "functions/tally/__init__.py", "functions/tally/web/page.html"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\n")
    (root / "requirements.txt").write_text("click==8.5.1\n")
    (root / "infra").mkdir()
    shutil.copy(ROOT / "infra" / "Dockerfile", root / "infra")
    return root


def names(archive: Path) -> list[str]:
    with zipfile.ZipFile(archive) as opened:
        return opened.namelist()


def test_the_same_tree_gives_the_same_bytes(tree: Path, tmp_path: Path) -> None:
    first = package.write_source(tmp_path / "a" / "functions.zip", tree)
    context = package.write_image_context(tmp_path / "a" / "worker", tree)
    copy = tmp_path / "copy"
    shutil.copytree(tree, copy)
    for path in copy.rglob("*"):
        path.chmod(0o755)
        os.utime(path, (1_000_000_000, 1_000_000_000))
    assert package.write_source(tmp_path / "b" / "functions.zip", copy) == first
    assert package.write_image_context(tmp_path / "b" / "worker", copy) == context
    assert (tmp_path / "a/functions.zip").read_bytes() == (tmp_path / "b/functions.zip").read_bytes()


@pytest.mark.parametrize("changed", ["functions/main.py", "requirements.txt", "functions/tally/web/page.html"])
def test_any_change_gives_another_name(tree: Path, tmp_path: Path, changed: str) -> None:
    source = package.write_source(tmp_path / "functions.zip", tree)
    image = package.write_image_context(tmp_path / "worker", tree)
    (tree / changed).write_text("x==1\n")
    assert package.write_source(tmp_path / "functions.zip", tree) != source
    assert package.write_image_context(tmp_path / "worker", tree) != image


def test_the_archive_holds_functions_and_requirements_at_its_root_and_nothing_else(tree: Path, tmp_path: Path) -> None:
    for name in (
        "functions/tally/__pycache__/x.cpython-313.pyc",
        "functions/tally.egg-info/PKG-INFO",
        "functions/.env",
        "functions/tally/testing/fakes.py",
        "tests/test_x.py",
        "README.md",
    ):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("no\n")
    package.write_source(tmp_path / "functions.zip", tree)
    assert names(tmp_path / "functions.zip") == [
        "main.py",
        "requirements.txt",
        "tally/__init__.py",
        "tally/web/page.html",
    ]


def test_every_file_of_the_real_package_is_one_that_is_deployed(tmp_path: Path) -> None:
    """A new kind of data file must be named in SHIPPED, or it would be missing where it is deployed."""
    package.write_source(tmp_path / "functions.zip")
    left_out = {
        path.relative_to(ROOT / "functions").as_posix()
        for path in (ROOT / "functions").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and "egg-info" not in str(path)
    } - set(names(tmp_path / "functions.zip"))
    wanted = {name for name in left_out if not name.startswith("tally/testing/") and not name.endswith(".md")}
    assert wanted == set()


def test_a_build_folder_is_laid_anew(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker" / "stale.py").write_text("")
    package.write_image_context(tmp_path / "worker", tree)
    assert sorted(p.name for p in (tmp_path / "worker").iterdir()) == [
        "Dockerfile",
        "main.py",
        "requirements.txt",
        "tally",
    ]
