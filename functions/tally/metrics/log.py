"""Counts the lines of the structured log. An action is fixed in the code, so that their number is bounded."""

import logging
from collections.abc import Mapping

from opentelemetry.metrics import Meter

from tally.metrics import instruments

REFUSED = "votes-refused"


class LogMetrics(logging.Handler):
    """A handler of the logger `tally`; sees what the log's level lets through."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._events = instruments.counter(meter, "tally.events")
        self._refused = instruments.counter(meter, "tally.votes.refused")

    def emit(self, record: logging.LogRecord) -> None:
        action = record.getMessage()
        self._events.add(1, {"action": action, "severity": record.levelname})
        if action == REFUSED:
            fields: Mapping[str, object] = getattr(record, "fields", {})
            self._refused.add(int(str(fields["votes"])), {"reason": str(fields["reason"])})
