import sqlite3
from pathlib import Path

import pytest

from tally.config import load
from tally.embedded.file import FORMAT, File, file_system
from tally.errors import ConfigError

MOUNTS = """\
/dev/vda / ext4 rw 0 0
server:/home /home nfs4 rw 0 0
/dev/vdb /home/with\\040space/disk xfs rw 0 0
drive /Volumes fuse.gcsfuse rw 0 0
"""


def _file(folder: Path) -> File:
    return File(path=folder / "tally.sqlite3", durability="power-loss")


@pytest.mark.parametrize(
    ("folder", "system"),
    [
        ("/var/tally", "ext4"),
        ("/home", "nfs4"),
        ("/home/a/.tally", "nfs4"),
        ("/home/with space/disk/x", "xfs"),
        ("/homely", "ext4"),
        ("/Volumes/b", "fuse.gcsfuse"),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(folder: str, system: str) -> None:
    assert file_system(Path(folder), MOUNTS) == system


def test_a_network_file_system_is_refused_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tally.embedded.file.file_system", lambda folder, mounts: "nfs4")
    with pytest.raises(ConfigError, match=r"network file system \(nfs4\)"):
        _file(tmp_path).create()


def test_the_folder_and_the_file_are_made_once(tmp_path: Path) -> None:
    file = _file(tmp_path / "a" / "b")
    file.create()
    before = file.path.read_bytes()
    file.create()
    assert file.path.read_bytes() == before


def test_a_newer_format_is_refused_and_not_touched(tmp_path: Path) -> None:
    file = _file(tmp_path)
    file.create()
    connection = sqlite3.connect(file.path)
    connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    connection.close()
    before = file.path.read_bytes()
    with pytest.raises(ConfigError, match=f"format {FORMAT + 1}, made by a newer Tally; this one knows up to {FORMAT}"):
        file.create()
    assert file.path.read_bytes() == before


def test_another_program_s_file_is_refused(tmp_path: Path) -> None:
    file = _file(tmp_path)
    connection = sqlite3.connect(file.path)
    connection.execute("CREATE TABLE theirs (a)")
    connection.close()
    with pytest.raises(ConfigError, match="not Tally's"):
        file.create()


def test_a_folder_that_cannot_be_made_is_a_wrong_setting(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(ConfigError, match="TALLY_STATE="):
        _file(tmp_path / "taken" / "below").create()


@pytest.mark.parametrize(("durability", "synchronous"), [("power-loss", 2), ("process-crash", 1)])
def test_durability_sets_when_the_log_is_synced(tmp_path: Path, durability: str, synchronous: int) -> None:
    settings = load({"TALLY_DURABILITY": durability})
    file = File(path=tmp_path / "tally.sqlite3", durability=settings.durability)
    file.create()
    connection = file.connect()
    assert connection.execute("PRAGMA synchronous").fetchone() == (synchronous,)
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()


def test_an_unknown_durability_is_named() -> None:
    with pytest.raises(ConfigError, match="TALLY_DURABILITY='none'"):
        load({"TALLY_DURABILITY": "none"})
