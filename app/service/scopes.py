"""What an API key may be used for."""

from collections.abc import Iterable
from typing import Literal, get_args

Scope = Literal["live", "files", "jobs", "rooms", "metrics", "usage"]
"""One use of a key: live sessions, file transcription, jobs, publishing in rooms, the metrics, all keys' usage."""

SCOPES: tuple[Scope, ...] = get_args(Scope)
CLIENT_SCOPES: frozenset[Scope] = frozenset({"live", "files", "jobs", "rooms"})
"""What a key may be used for if nothing is said. The others are the operator's."""


def read_scopes(names: Iterable[object]) -> frozenset[Scope]:
    """The scopes with these names.

    Raises:
        ValueError: there is none with such a name.
    """
    known: dict[object, Scope] = {scope: scope for scope in SCOPES}
    scopes = []
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise ValueError(f"expected {', '.join(SCOPES)}, got {name!r}")
        scopes.append(known[name])
    if not scopes:
        raise ValueError(f"expected at least one of {', '.join(SCOPES)}, got none")
    return frozenset(scopes)
