import click
import pytest

from tally.cli.serve import listen


def test_servers_share_a_port_when_each_is_told_to() -> None:
    with listen("127.0.0.1", 0, reuse_port=True) as first:
        port = first.getsockname()[1]
        with listen("127.0.0.1", port, reuse_port=True) as second:
            assert second.getsockname()[1] == port


@pytest.mark.parametrize("reuse_port", [False, True])
def test_a_port_that_was_not_meant_to_be_shared_is_not(reuse_port: bool) -> None:
    with listen("127.0.0.1", 0, reuse_port=not reuse_port) as first:
        port = first.getsockname()[1]
        with pytest.raises(click.ClickException, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port, reuse_port=reuse_port)
