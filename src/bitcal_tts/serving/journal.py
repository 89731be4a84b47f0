"""What the sidecar logs, for machines."""

from __future__ import annotations

import json
import logging
from asyncio import CancelledError
from traceback import format_tb

_HUNG_UP = "socket.send() raised exception."  # what asyncio says of each


class _Lines(logging.Formatter):
    """A JSON object a line: what happened, and nothing that anybody wrote.

    Of an error its kind and where it was, not its message, which may be a client's words.
    """

    def format(self, record: logging.LogRecord) -> str:
        usual = logging.makeLogRecord({}).__dict__.keys() | {"message", "asctime"}
        more = {key: value for key, value in record.__dict__.items() if key not in usual}
        told = {"time": self.formatTime(record), "log": record.name, "event": record.getMessage().strip(), **more}
        if record.exc_info and record.exc_info[0] is not None:
            told |= {"error": record.exc_info[0].__name__, "traceback": format_tb(record.exc_info[2])}
        return json.dumps(told, ensure_ascii=False, default=str)


def _is_a_failure(record: logging.LogRecord) -> bool:
    """Whether something went wrong: not what is given up at the end, nor what is sent to one who has hung up."""
    given_up = isinstance(record.exc_info[1] if record.exc_info else None, CancelledError)
    return not given_up and record.getMessage() != _HUNG_UP


def log_as_json() -> None:
    """Write what is logged, by the server and all libraries too, to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines())
    handler.addFilter(_is_a_failure)
    logging.getLogger().addHandler(handler)
    logging.getLogger("bitcal").setLevel(logging.INFO)
