"""One structured line an event: JSON on stderr with a fixed `action`. No payloads, no voter ids."""

import logging
import sys
from datetime import UTC, datetime

import msgspec

_logger = logging.getLogger("tally")
_encode = msgspec.json.Encoder(enc_hook=str).encode


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "severity": record.levelname,
            "action": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encode(line).decode()


def setup(level: str = "INFO") -> None:
    """Send Tally's events to stderr as JSON lines, in the form that Cloud Logging parses."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonLines())
    _logger.handlers = [handler]
    _logger.setLevel(level)
    _logger.propagate = False


def event(action: str, /, *, level: int = logging.INFO, error: BaseException | None = None, **fields: object) -> None:
    """Log one event. `fields` are small JSON values; `error` adds its traceback."""
    if _logger.isEnabledFor(level):
        _logger.log(level, action, extra={"fields": fields}, exc_info=error)
