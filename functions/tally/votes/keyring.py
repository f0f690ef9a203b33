"""The ballot keys: a folder with one file a version, its name the version, its content the key in hexadecimal.

A poll keeps the version that it was made with for life. A version may be destroyed only when no poll that can still
take votes uses it: with another key every voter would have a second ballot.
"""

import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile

from tally.errors import Busy, ConfigError

KEY_BYTES = (16, 64)
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")


class KeyRing:
    def __init__(self, keys: Mapping[str, bytes]) -> None:
        self._keys = dict(keys)

    def __contains__(self, version: str) -> bool:
        return version in self._keys

    def get(self, version: str) -> bytes:
        """Return the key of a version; raise Busy if this process lacks it: another one may have it already."""
        try:
            return self._keys[version]
        except KeyError:
            raise Busy(f"this process lacks ballot key {version!r}", retry_after=5, code="ballot-key-missing") from None


def load(folder: Path) -> KeyRing:
    """Read every key of the folder; raise ConfigError naming the file that is wrong. Hidden files are passed over."""
    keys = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not file.name.startswith(".") and file.is_file():
            keys[check_version(file.name)] = _parse(file)
    return KeyRing(keys)


def check_version(version: str) -> str:
    """Return the version; raise ConfigError unless it can be the name of a key's file."""
    if not _VERSION.fullmatch(version):
        raise ConfigError(f"ballot key version {version!r}: want 1 to 63 of A-Z a-z 0-9 _ -")
    return version


def make(folder: Path, version: str) -> None:
    """Make a key unless it is there: one only, and whole, however many processes start together."""
    target = folder / check_version(version)
    if target.exists():
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=folder, prefix=".", suffix=".new") as draft:
        draft.write(secrets.token_hex(32))
        draft.flush()
        os.fsync(draft.fileno())
        try:
            target.hardlink_to(draft.name)
        except FileExistsError:
            return


def _parse(file: Path) -> bytes:
    least, most = KEY_BYTES
    try:
        key = bytes.fromhex(file.read_text(encoding="ascii").strip())
    except (ValueError, OSError) as error:
        raise ConfigError(f"ballot key {file}: want hexadecimal digits") from error
    if not least <= len(key) <= most:
        raise ConfigError(f"ballot key {file} has {len(key)} bytes: want {least} to {most}")
    return key
