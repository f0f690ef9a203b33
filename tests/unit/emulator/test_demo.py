from pathlib import Path

from emulator import demo


def test_a_message_is_redelivered_if_two_workers_pulled_it(tmp_path: Path) -> None:
    lines = {
        "killed": '{"action":"pulled","ids":["1","2","2"]}\n{"action":"ready"}\n{"action":"pulled","ids":["3',
        "other": '{"action":"pulled","ids":["2"]}\n{"action":"pulled","ids":["3","4","4"]}\n',
        "third": '{"action":"pulled","ids":["2","5"]}\n',
    }
    for name, text in lines.items():
        (tmp_path / name).write_text(text)
    assert demo.redelivered(tmp_path / name for name in lines) == 1
