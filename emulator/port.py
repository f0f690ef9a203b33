"""Ports of this machine: a free one to start a server on, and whether it is that server that answers there."""

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from random import SystemRandom

# Below the ports that the kernel gives to connections and to whoever asks for any: a server needs seconds to take its
# port, and one of those would be gone by then.
_RANGE = range(10_000, 32_768)
_PROC = Path("/proc")


def free_port() -> int:
    """Return a port that nothing listens on at this moment."""
    while True:
        port = SystemRandom().choice(_RANGE)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def in_use(port: int) -> bool:
    """Tell whether a server of this machine's own address could not be started on the port."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return True
    return False


def listens(group: int, port: int) -> bool:
    """Tell whether a process of this group listens on the port. Where the system does not say, believe it."""
    if not (_PROC / "net/tcp").exists():
        return True
    sockets = {f"socket:[{inode}]" for inode in _listeners(port)}
    return any(sockets & _open_files(process) for process in _members(group))


def _listeners(port: int) -> Iterator[str]:
    """Yield the inodes of the sockets that listen on a port, by the kernel's tables."""
    for table in ("net/tcp", "net/tcp6"):
        with contextlib.suppress(FileNotFoundError):
            for line in (_PROC / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _members(group: int) -> Iterator[Path]:
    for process in _PROC.iterdir():
        if process.name.isdigit():
            with contextlib.suppress(ProcessLookupError):
                if os.getpgid(int(process.name)) == group:
                    yield process


def _open_files(process: Path) -> set[str]:
    files = set()
    with contextlib.suppress(OSError):  # it has ended meanwhile
        for descriptor in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                files.add(str(descriptor.readlink()))
    return files
