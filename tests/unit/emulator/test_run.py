from pathlib import Path

from emulator import run


def test_another_shell_is_told_all_that_its_commands_need(tmp_path: Path) -> None:
    environ = {
        "HOME": "/home/ann",
        "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
        "TALLY_BACKEND": "emulator",
        "TALLY_STATE": str(tmp_path),
        "TALLY_STREAMS": "2",
    }
    assert run.shared(environ, "http://127.0.0.1:8091") == {
        "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
        "TALLY_BACKEND": "emulator",
        "TALLY_STATE": str(tmp_path),
        "TALLY_STREAMS": "2",
        "TALLY_URL": "http://127.0.0.1:8091",
        "TALLY_RUN_TASK_URL": "http://127.0.0.1:8091",
    }


def test_the_state_is_named_so_that_a_shell_in_another_folder_finds_it() -> None:
    environ = {"TALLY_BACKEND": "embedded", "TALLY_STATE": ".tally", "TALLY_STREAMS": "1"}
    assert run.shared(environ, "http://127.0.0.1:8080")["TALLY_STATE"] == str(Path.cwd() / ".tally")
