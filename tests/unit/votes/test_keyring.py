import subprocess
import sys
from pathlib import Path

import pytest

from tally.errors import Busy, ConfigError
from tally.votes import keyring


def test_every_version_in_the_folder_is_there_and_hidden_files_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("00" * 32)
    (tmp_path / "2").write_text("FF" * 16 + "\n")
    (tmp_path / "..data").mkdir()
    (tmp_path / ".draft").write_text("nonsense")
    keys = keyring.load(tmp_path)
    assert keys.get("1") == bytes(32)
    assert keys.get("2") == b"\xff" * 16


def test_of_two_processes_that_make_a_key_at_once_one_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keyring.make(tmp_path, "1")
    first = (tmp_path / "1").read_text()
    with monkeypatch.context() as patched:
        patched.setattr(Path, "exists", lambda _: False)  # as the other saw it, a moment before
        keyring.make(tmp_path, "1")
    assert (tmp_path / "1").read_text() == first
    assert [file.name for file in tmp_path.iterdir()] == ["1"]


def test_a_version_that_the_process_lacks_may_be_there_later(tmp_path: Path) -> None:
    with pytest.raises(Busy, match="lacks ballot key '7'"):
        keyring.load(tmp_path / "none").get("7")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("1", "not hexadecimal", "want hexadecimal digits"),
        ("1", "00" * 15, "has 15 bytes: want 16 to 64"),
        ("1", "00" * 65, "has 65 bytes: want 16 to 64"),
        ("1", "", "has 0 bytes"),
        ("a key", "00" * 32, "version 'a key'"),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(ConfigError, match=message):
        keyring.load(tmp_path)


def test_a_key_is_made_once_and_only_its_owner_may_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "keys"
    keyring.make(folder, "1")
    first = keyring.load(folder).get("1")
    keyring.make(folder, "1")
    assert keyring.load(folder).get("1") == first
    assert len(first) == 32
    assert (folder / "1").stat().st_mode & 0o077 == 0
    assert [file.name for file in folder.iterdir()] == ["1"]


def test_processes_that_start_together_make_one_key(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tally.votes import keyring; folder = Path(sys.argv[1]);"
        "keyring.make(folder, '1'); print(keyring.load(folder).get('1').hex())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "keys")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert len({process.communicate(timeout=30)[0] for process in processes}) == 1
    assert all(process.returncode == 0 for process in processes)
