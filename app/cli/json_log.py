"""Log lines for programs: one JSON object a line."""

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from tutti_server.app.service.request_ids import CURRENT

_ID = re.compile(r"\[(?:(?P<request_id>req_\w+)|(?P<session_id>s_\w+))\] ")
"""The id of a request or of a session, which a message begins with. Ids of other things stay in the message."""
_TRACE_PREFIX = " trace="
"""What the plug-in of telemetry puts before the id of a trace."""


class JsonFormatter(logging.Formatter):
    """Makes an object of each record.

    Its fields are `time` (ISO 8601, UTC), `level`, `logger` and `message`, and where they are known `process`,
    `request_id`, `session_id`, `trace_id` and `exception`.
    """

    def __init__(self, has_process: bool = False) -> None:
        super().__init__()
        self._has_process = has_process

    def format(self, record: logging.LogRecord) -> str:
        """The object as a line without a line end."""
        message = record.getMessage()
        own_id = _ID.match(message)
        exception = self.formatException(record.exc_info) if record.exc_info else ""
        known: dict[str, Any] = {
            "process": record.processName if self._has_process else "",
            "request_id": CURRENT.get(),
            "trace_id": getattr(record, "trace", "").removeprefix(_TRACE_PREFIX),
            **({name: id_ for name, id_ in own_id.groupdict().items() if id_} if own_id else {}),
            "exception": "\n".join(filter(None, (exception, record.stack_info))),
        }
        return json.dumps(
            {
                "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": message[own_id.end() :] if own_id else message,
                **{name: value for name, value in known.items() if value},
            },
            ensure_ascii=False,
        )
