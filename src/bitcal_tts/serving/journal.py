"""What the sidecar logs, for machines."""

from __future__ import annotations

import json
import logging


class _Lines(logging.Formatter):
    """A JSON object a line: what happened, and nothing that anybody wrote."""

    def format(self, record: logging.LogRecord) -> str:
        usual = logging.makeLogRecord({}).__dict__.keys() | {"message", "asctime"}
        more = {key: value for key, value in record.__dict__.items() if key not in usual}
        told = {"time": self.formatTime(record), "log": record.name, "event": record.getMessage(), **more}
        return json.dumps(told, ensure_ascii=False)


def log_as_json() -> None:
    """Write what is logged to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    log = logging.getLogger("bitcal")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
