"""What the sidecar logs, for machines."""

from __future__ import annotations

import json
import logging
from asyncio import CancelledError


class _Lines(logging.Formatter):
    """A JSON object a line: what happened, and nothing that anybody wrote."""

    def format(self, record: logging.LogRecord) -> str:
        usual = logging.makeLogRecord({}).__dict__.keys() | {"message", "asctime"}
        more = {key: value for key, value in record.__dict__.items() if key not in usual}
        told = {"time": self.formatTime(record), "log": record.name, "event": record.getMessage(), **more}
        return json.dumps(told, ensure_ascii=False)


def _is_a_failure(record: logging.LogRecord) -> bool:
    """Whether something went wrong, and was not merely given up when the sidecar was told to end."""
    return not isinstance(record.exc_info[1] if record.exc_info else None, CancelledError)


def log_as_json() -> None:
    """Write what is logged to standard error; requests that are given up at the end are no failures of the server."""
    logging.getLogger("uvicorn.error").addFilter(_is_a_failure)
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    log = logging.getLogger("bitcal")
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
