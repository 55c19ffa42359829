"""Puts the id of the trace into log lines, so that a line leads to its trace and a trace to its lines."""

import logging

from opentelemetry.trace import format_trace_id, get_current_span


class TraceIds(logging.Filter):
    """Gives each record the attribute `trace`: ` trace=` and the id of the trace in which it was made.

    It is empty outside of traces, and in those that are not recorded.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attribute; no record is left out."""
        context = get_current_span().get_span_context()
        record.trace = f" trace={format_trace_id(context.trace_id)}" if context.trace_flags.sampled else ""
        return True
