"""The composition root: settings → backend → services. The one place that sees backends and services together."""

from importlib import import_module
from typing import cast

from tally.config import Settings
from tally.ports import Backend


async def open_backend(settings: Settings) -> Backend:
    """Open the ports of the backend that the settings name; the import is lazy, so that embedded needs no google."""
    package = import_module("tally.embedded" if settings.backend == "embedded" else "tally.gcp")
    return cast(Backend, await package.open(settings))
