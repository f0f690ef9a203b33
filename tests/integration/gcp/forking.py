"""A server that opens its backend, forks three children, and lets each write: run by test_fork.py.

The first argument says what the parent did with the backend before: nothing (`unused`), used and `closed` it, or left
it `open`.
"""

import asyncio
import os
import signal
import sys

from tally import config, gcp
from tally.config import Settings
from tally.errors import ConfigError
from tally.ports import Backend, Entity, Insert


async def write(backend: Backend, name: str, number: int) -> None:
    for count in range(1, number + 1):
        await backend.store.commit([Insert(Entity(key=((name, f"{os.getpid()}-{count}"),), properties={}))])


async def parent(settings: Settings, use: str) -> Backend:
    backend = await gcp.open(settings)
    if use != "unused":
        await write(backend, "Parent", 1)
    if use == "closed":
        await backend.close()
    return backend


async def child(backend: Backend, number: int) -> str:
    try:
        await write(backend, "Child", number)
    except ConfigError as error:
        return f"refused: {error}"[: len("refused: this process was forked")]
    finally:
        await backend.close()
    return "done"


def main(use: str, number: int) -> None:
    backend = asyncio.run(parent(config.load(os.environ), use))
    children = []
    for _ in range(3):
        process = os.fork()
        if process == 0:
            signal.alarm(30)
            os.write(1, f"{asyncio.run(child(backend, number))}\n".encode())  # one write: children share the pipe
            os._exit(0)
        children.append(process)
    codes = [os.waitpid(process, 0)[1] for process in children]
    os._exit(max(codes))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
