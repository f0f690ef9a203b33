"""The composition root: settings → backend → services. The one place that sees backends and services together."""

from tally.config import Settings
from tally.ports import Backend


async def open_backend(settings: Settings) -> Backend:
    """Open the ports of the backend that the settings name; the import is lazy, so that embedded needs no google."""
    if settings.backend == "embedded":
        from tally import embedded

        return await embedded.open(settings)
    from tally import gcp

    return await gcp.open(settings)
