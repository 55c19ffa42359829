"""The settings of accounts, beside those of the service."""

from pathlib import Path

import pytest

from tests.fakes import FakeTranscriber
from tutti_server.app.errors import SettingsError
from tutti_server.app.server.main import build_app
from tutti_server.app.server.plugins import make_settings
from tutti_server.plugins.accounts.plugin import plugin


def test_keys_of_the_database_allow_a_public_address_and_need_redis_for_several_gateways() -> None:
    settings = make_settings({"host": "0.0.0.0", "database_keys": True, "metrics_need_key": True})
    assert not settings.metrics_have_no_reader, "a key with the scope metrics may be made at any time"
    make_settings({"database_keys": True, "gateways": 2, "redis_url": "redis://localhost"})
    with pytest.raises(SettingsError, match="database_keys: expected redis_url with it"):
        make_settings({"database_keys": True, "gateways": 2})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"job_workers": -1, "jobs": True}, "job_workers: expected 0 or more, got -1"),
        ({"job_lease_s": 0.0, "jobs": True}, "job_lease_s: expected more than 0, got 0.0"),
        # Else results would be kept as long as the recordings.
        ({"job_audio_days": 30.0, "jobs": True}, "job_audio_days: expected at most job_result_days, 7, got 30"),
        ({"job_secret": "s"}, "job_secret: expected jobs with it, as nothing else uses it"),
        ({"callback_hosts": "https://example.org", "jobs": True}, "callback_hosts: expected names such as example.org"),
        ({"callback_hosts": "*example.org", "jobs": True}, r"callback_hosts: expected \*.example.org for all names"),
        ({"database_url": "mysql://host/name"}, "database_url: expected postgresql://"),
        ({"job_spool": "s3://", "jobs": True}, "job_spool: expected a folder or s3://bucket/folder, got 's3://'"),
        ({"job_spool": "s3://b/../x", "jobs": True}, "job_spool: expected a folder or s3://bucket/folder, got"),
        ({"job_spool": "s3://b/x//y", "jobs": True}, "job_spool: expected a folder or s3://bucket/folder, got"),
        ({"job_spool": "~nobody-here/x", "jobs": True}, "job_spool: expected a folder, got '~nobody-here/x'"),
        ({"data_folder": "~nobody-here/x"}, "data_folder: expected a folder, got '~nobody-here/x'"),
        ({"secret_keys_file": "~nobody-here/x"}, "secret_keys_file: expected a text file with keys, got"),
    ],
)
def test_a_value_that_cannot_be_used_stops_the_start(values: dict[str, object], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        make_settings(values)


def test_a_service_that_needs_keys_is_never_served_without_its_plugin() -> None:
    """It would be open to everybody."""
    settings = make_settings({"host": "0.0.0.0", "database_keys": True})
    with pytest.raises(SettingsError, match="database_keys: expected the plug-in with this setting"):
        build_app(settings, FakeTranscriber(), plugins=())


async def test_a_file_in_place_of_the_data_folder_stops_the_start(tmp_path: Path) -> None:
    file = tmp_path / "tutti.db"
    file.touch()
    settings = make_settings({"jobs": True, "data_folder": str(file)})
    with pytest.raises(SettingsError, match="job_spool: expected to write, read, list and delete in"):
        await plugin.prepare(settings)
