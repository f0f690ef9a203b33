"""Package what is deployed: the functions' source zip and the folder that the worker's image is built from.

Both hold the content of functions/ with requirements.txt at the root, and the same tree gives the same bytes: names
are sorted, times and modes fixed, and nothing is compressed, as zlib's output differs from version to version.
"""

import argparse
import hashlib
import shutil
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = {".py", ".html", ".typed"}
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say


def files(root: Path = ROOT) -> Iterator[tuple[str, Path]]:
    """Yield (name in the package, path) of every file that is deployed, sorted by name."""
    functions = root / "functions"
    found = {"requirements.txt": root / "requirements.txt"}
    for path in functions.rglob("*"):
        name = path.relative_to(functions).as_posix()
        if path.is_file() and path.suffix in SHIPPED and not name.startswith("tally/testing/"):
            found[name] = path
    yield from sorted(found.items())


def write_source(target: Path, root: Path = ROOT) -> str:
    """Write the functions' source zip; return the SHA-256 of its bytes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, path in files(root):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system = 3  # Unix, on whatever machine
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, path.read_bytes())
    return hashlib.sha256(target.read_bytes()).hexdigest()


def write_image_context(target: Path, root: Path = ROOT) -> str:
    """Lay the folder that the worker's image is built from; return a SHA-256 over its names and contents."""
    if target.exists():
        shutil.rmtree(target)
    digest = hashlib.sha256()
    for name, path in [("Dockerfile", root / "infra" / "Dockerfile"), *files(root)]:
        content = path.read_bytes()
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_bytes(content)
    return digest.hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description="Package the functions' source and the worker image's build folder.")
    parser.add_argument("--out", type=Path, default=ROOT / "build")
    out = parser.parse_args().out
    sys.stdout.write(f"{write_source(out / 'functions.zip')}  {out / 'functions.zip'}\n")
    sys.stdout.write(f"{write_image_context(out / 'worker')}  {out / 'worker'}\n")


if __name__ == "__main__":
    main()
