"""`GET /v1/usage`: how much audio each key has used, by day and kind."""

from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tutti_server.app.errors import RETRY_AFTER_S, RequestError, shorten
from tutti_server.app.service.accounts import readable_usage
from tutti_server.app.service.auth import Client, header_key
from tutti_server.app.service.http_errors import authorized
from tutti_server.app.service.service import Service
from tutti_server.plugins.accounts.accounts import Accounts, accounts_of, check_parameters

if TYPE_CHECKING:
    from tutti_server.plugins.accounts.keys.usage_counter import UsageCounter

MAX_DAYS = 366
"""The most days that one request may ask for."""
PARAMETERS = ("from", "to", "key")


async def show_usage(request: Request) -> Response:
    """The usage of the key that asks; with the scope `usage` of any key, or of all."""
    service: Service = request.app.state.service
    accounts = accounts_of(request)
    client = authorized(service.access.known_client(header_key(request.headers)))
    if accounts.usage is None:
        needed = "TUTTI_DATABASE_KEYS, or TUTTI_KEYS_FILE with TUTTI_JOBS"
        raise RequestError(404, f"usage is not kept here: it needs {needed}", code="not_counted")
    check_parameters(request, PARAMETERS)
    account = _account(accounts, client, request)
    from_day, to_day = _days(request)
    return JSONResponse(await _usage(accounts, accounts.usage, account, from_day, to_day))


def _account(accounts: Accounts, client: Client, request: Request) -> str | None:
    name = request.query_params.get("key")
    is_operator = "usage" in client.scopes
    if not is_operator:
        own = client.key
        if own is None:
            message = "expected a key with a name; keys of TUTTI_API_KEYS have none, and are counted together"
            raise RequestError(403, message, code="scope")
        account = readable_usage(own, name)
        if account is None:
            message = f"key: expected {own.name}, or a key with the scope usage, got {shorten(name)}"
            raise RequestError(403, message, "key", "scope")
        return account
    if name is None:
        return None
    if name in accounts.names:
        return name
    # A name may be given to a new key when the old one is withdrawn: the newest has it.
    named = [account for account, its_name in accounts.names.items() if its_name == name]
    if not named:
        raise RequestError(404, f"key: expected the name or the id of a key, got {shorten(name)}", "key", "unknown_key")
    return named[-1]


def _days(request: Request) -> tuple[date, date]:
    """The days that are asked for, both included; by default this month so far."""
    today = datetime.now(UTC).date()
    to_day = _day(request, "to", today)
    from_day = _day(request, "from", to_day.replace(day=1))
    if not 0 <= (to_day - from_day).days < MAX_DAYS:
        raise RequestError(400, f"from: expected 1 to {MAX_DAYS} days up to {to_day}, got {from_day}", "from")
    return from_day, to_day


def _day(request: Request, name: str, default: date) -> date:
    value = request.query_params.get(name)
    if value is None:
        return default
    try:
        return datetime.strptime(value, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise RequestError(400, f"{name}: expected a day such as {default}, got {shorten(value)}", name) from None


async def _usage(
    accounts: Accounts, usage: "UsageCounter", account: str | None, from_day: date, to_day: date
) -> dict[str, Any]:
    # Imported here because it brings the database, which most services do not use.
    from tutti_server.plugins.accounts.database.database import DatabaseAway

    try:
        entries = await usage.used(from_day, to_day, account)
    except DatabaseAway:
        message = f"the database cannot be reached; try again in {RETRY_AFTER_S} s"
        raise RequestError(503, message, code="database_away") from None
    names = accounts.names
    data = [
        {
            "key_id": each.account,
            "key": names.get(each.account),
            "day": f"{each.day}",
            "kind": each.kind,
            "audio_s": round(each.audio_s, 3),
            "n": each.n,
        }
        for each in entries
    ]
    return {"object": "list", "from": f"{from_day}", "to": f"{to_day}", "data": data}
