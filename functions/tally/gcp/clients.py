"""The generated clients of this process: made at first use, in the running event loop, one channel each.

gRPC does not survive a fork while it is in use: calls of the child hang without a word. So a child makes its own
clients, and is refused where its parent's were open. The generated clients add the routing header that a named database
needs; no emulator would notice its absence.
"""

import os
from collections.abc import Callable
from typing import Any, Final
from weakref import WeakSet

import grpc.aio
from google.auth.exceptions import GoogleAuthError
from google.cloud.datastore_v1.services.datastore import DatastoreAsyncClient
from google.cloud.datastore_v1.services.datastore.transports import DatastoreGrpcAsyncIOTransport
from google.cloud.tasks_v2.services.cloud_tasks import CloudTasksAsyncClient
from google.cloud.tasks_v2.services.cloud_tasks.transports import CloudTasksGrpcAsyncIOTransport
from google.pubsub_v1.services.publisher import PublisherAsyncClient
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber import SubscriberAsyncClient
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport

from tally.config import Settings
from tally.errors import ConfigError
from tally.gcp.errors import translate
from tally.limits import CHANNEL_BYTES

_OPTIONS: Final = (
    ("grpc.max_send_message_length", int(CHANNEL_BYTES)),
    ("grpc.max_receive_message_length", int(CHANNEL_BYTES)),
    # gRPC would wait up to two minutes before it tries a restarted service again.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    # A frozen service must fail: its pulls would end as if the subscription were idle. A ping goes out when nothing has
    # come for so long while a call waits; without a time limit of its own it is given a minute.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
)
# http_proxy is for the world outside: an emulator is on this machine.
_EMULATOR_OPTIONS: Final = (("grpc.enable_http_proxy", 0),)


class Clients:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: dict[str, Any] = {}
        self._process = 0

    @property
    def datastore(self) -> Any:
        host = self._settings.datastore_emulator
        return self._client("datastore", lambda: _make(DatastoreAsyncClient, DatastoreGrpcAsyncIOTransport, host))

    @property
    def publisher(self) -> Any:
        host = self._settings.pubsub_emulator
        return self._client("publisher", lambda: _make(PublisherAsyncClient, PublisherGrpcAsyncIOTransport, host))

    @property
    def subscriber(self) -> Any:
        host = self._settings.pubsub_emulator
        return self._client("subscriber", lambda: _make(SubscriberAsyncClient, SubscriberGrpcAsyncIOTransport, host))

    @property
    def tasks(self) -> Any:
        host = self._settings.cloud_tasks_emulator
        return self._client("tasks", lambda: _make(CloudTasksAsyncClient, CloudTasksGrpcAsyncIOTransport, host))

    def _client(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._made or self._process != os.getpid():
            _refuse_after_fork()
            try:
                self._made[name] = make()
            except GoogleAuthError as error:
                raise translate(f"credentials of {name}", error) from error
            self._process = os.getpid()
            _in_use.add(self)
        return self._made[name]

    async def close(self) -> None:
        """Close every channel that this process opened; the next call opens anew."""
        if self.forked():
            return
        made, self._made = self._made, {}
        for client in made.values():
            await client.transport.close()
        _in_use.discard(self)

    def forked(self) -> bool:
        """Tell whether the channels, if any, are those of a parent process."""
        return self._process != os.getpid()


_in_use: WeakSet[Clients] = WeakSet()


def _refuse_after_fork() -> None:
    if any(clients.forked() for clients in _in_use):
        raise ConfigError(
            "this process was forked while its parent's connections to Google were open, which gRPC does not survive: "
            "fork before the first call, close the backend first, or start a new process"
        )


def _make(client: Any, transport: Any, emulator_host: str) -> Any:
    if emulator_host:
        channel = grpc.aio.insecure_channel(emulator_host, options=[*_OPTIONS, *_EMULATOR_OPTIONS])
        return client(transport=transport(channel=channel))

    def cloud_channel(*arguments: Any, **keywords: Any) -> grpc.aio.Channel:
        made: grpc.aio.Channel = transport.create_channel(*arguments, **(keywords | {"options": _OPTIONS}))
        return made

    return client(transport=transport(channel=cloud_channel))
