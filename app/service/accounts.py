"""Accounts: whose a call, a room, a job and its usage are. The one place that decides who may see what.

Everything that a client makes has the account of its key, and only clients of that account find it. To all others it
does not exist, so that two accounts may have calls with the same id.
"""

import hashlib

from tutti_server.app.service.api_keys import UNNAMED, ApiKey

ANYONE = "anyone"
"""The account of all clients of a service without keys."""
OPERATOR = "operator"
"""The account of calls that showed no key where clients need one. No key belongs to it."""


def account_of(key: ApiKey | None, credential: str) -> str:
    """The account of a valid API key: a name that holds no key, and is the same for the same key at all times.

    Args:
        credential: what its client has sent. Keys without a name have an account each.
    """
    if key is not None:
        return f"account:{key.account}"
    return f"sha256:{hashlib.sha256(credential.encode()).hexdigest()}"


def usage_account(key: ApiKey | None) -> str:
    """The account that usage counts the audio of a key for."""
    return key.account if key is not None else UNNAMED


def readable_usage(key: ApiKey | None, wanted: str | None) -> str | None:
    """The account whose usage a key without the scope `usage` may read: its own. `None` if it wants another's.

    Args:
        key: the key, if it has a name. Without one it has no usage of its own.
        wanted: the name or the id that its client has sent; `None` for the key's own.
    """
    if key is None or wanted not in (None, key.name, key.account):
        return None
    return key.account
