"""What the settings of jobs, and of the addresses that clients name, must be."""

import ipaddress
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import SettingsError

if TYPE_CHECKING:
    from app.jobs.addresses import AddressRules
    from app.jobs.fetch import RecordingFetcher
    from app.service.settings import Settings

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

DAY_S = 86_400.0


def check_jobs(settings: "Settings") -> None:
    """Check these settings.

    Raises:
        SettingsError: a value is not valid, or has no effect without another one.
    """
    private_networks(settings)
    for name in ("url_hosts", "callback_hosts"):
        for host in _listed(getattr(settings, name)):
            if not host.isascii() or set(host) & set("/: @") or "*" in host.removeprefix("*"):
                raise SettingsError(f"{name}: expected names such as example.org or *.example.org, got {host!r}")
            if host.startswith("*") and host != "*" and not host.startswith("*."):
                raise SettingsError(f"{name}: expected *.example.org for all names below one, got {host!r}")
    if settings.url_hosts and not _listed(settings.url_types):
        raise SettingsError("url_types: expected content types, as url_hosts is set, got none")
    if not settings.jobs:
        for name in ("job_spool", "job_secret", "callback_hosts"):
            if getattr(settings, name):
                raise SettingsError(f"{name}: expected jobs with it, as nothing else uses it")


def private_networks(settings: "Settings") -> tuple[Network, ...]:
    """The private networks that addresses of clients may lead to."""
    try:
        return tuple(map(ipaddress.ip_network, _listed(settings.private_networks)))
    except ValueError as error:
        raise SettingsError(f"private_networks: expected networks such as 10.1.0.0/16, got {error}") from error


def spool_folder(settings: "Settings") -> Path:
    """The folder of the recordings."""
    return Path(settings.job_spool).expanduser() if settings.job_spool else settings.data_path / "jobs"


def address_rules(settings: "Settings", name: str) -> "AddressRules":
    """The rules for addresses whose hosts are listed in the setting with this name."""
    from app.jobs.addresses import AddressRules

    return AddressRules(
        name,
        _listed(getattr(settings, name)),
        private_networks=private_networks(settings),
        allows_http=settings.allow_http_urls,
    )


def fetcher(settings: "Settings") -> "RecordingFetcher":
    """Fetches recordings within the operator's limits."""
    from app.jobs.fetch import RecordingFetcher

    return RecordingFetcher(
        rules=address_rules(settings, "url_hosts"),
        types=_listed(settings.url_types),
        max_bytes=settings.max_upload_mb * 1_000_000,
        timeout_s=settings.url_timeout_s,
    )


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each.strip().lower() for each in text.split(",") if each.strip())
