"""Makes sure that the process may open as many files as its settings need: each connection takes one."""

import logging
import resource

from tutti_server.app.publish.call_subscribers import MAX_SUBSCRIBERS_PER_CALL
from tutti_server.app.service.settings import Settings

SPARE = 256
"""Descriptors for everything but clients: the model, libraries, logs, the webhook."""
PER_UPLOAD = 2
"""The connection, and the file on disk."""

logger = logging.getLogger(__name__)


def n_needed(settings: Settings) -> int:
    """How many descriptors a process needs when all its limits are reached at the same time."""
    sessions = settings.max_sessions * (1 + MAX_SUBSCRIBERS_PER_CALL)
    return sessions + settings.max_room_readers + PER_UPLOAD * settings.max_uploads + settings.max_strangers + SPARE


def reserve_descriptors(settings: Settings) -> None:
    """Raise the limit of this process to what the settings need. If the system does not allow it, warn."""
    needed = n_needed(settings)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < needed:
        logger.warning(
            "%d open files are needed, the system allows %d: raise the limit (ulimit -Hn), or lower max_sessions, "
            "max_uploads or max_room_readers",
            needed,
            allowed,
        )
