"""The settings of accounts: keys of a database, jobs, and where both are kept."""

from dataclasses import dataclass
from pathlib import Path

from tutti_server.app.errors import SettingsError
from tutti_server.app.service.settings import PluginSettings, Settings, check_hosts, setting
from tutti_server.plugins.accounts.database.address import database_address, folder_of, state_folder
from tutti_server.plugins.accounts.database.seals import seals_of_file
from tutti_server.plugins.accounts.jobs.spool import check_place


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountSettings(PluginSettings):
    """The settings of accounts."""

    data_folder: str = setting(
        "",
        "Folder for what the service keeps over a restart. Empty: tutti in $XDG_STATE_HOME, or in ~/.local/state. It "
        "is made when something is kept for the first time.",
    )
    database_url: str = setting(
        "",
        "Database for the same: postgresql://user:password@host/name, which several machines can share and which needs "
        "the extra postgres, or sqlite:///path. Empty: the file tutti.db in data_folder.",
    )
    secret_keys_file: str = setting(
        "",
        "File with the keys that seal secrets in the database: addresses of jobs and signing keys. 32 random bytes in "
        "base64 on each line; the first seals, all open. Needs the extra sealing. Empty: nothing is sealed.",
    )
    database_keys: bool = setting(
        False,
        "Accept the API keys that `tutti keys` makes in the database, and count there what all keys use. Several "
        "gateways need redis_url with it, several machines database_url, too.",
    )
    max_key_labels: int = setting(
        20,
        "The most keys whose names are labels of metrics; the oldest have one. All others are counted together.",
        least=0,
    )
    jobs: bool = setting(
        False,
        "Take in recordings as jobs, at /v1/jobs and by Deepgram's callback, which are kept in the database and done "
        "later. Several machines need database_url with it, and a job_spool that all of them see.",
    )
    job_workers: int = setting(2, "Jobs that each gateway decodes at the same time. 0: it only takes them in.", least=0)
    job_lease_s: float = setting(
        60.0, "How long after the death of a gateway others take its jobs, in seconds.", above=0
    )
    job_attempts: int = setting(5, "How often a job is tried before it has failed.", above=0)
    job_spool: str = setting(
        "",
        "Folder for the recordings of jobs, or s3://bucket/folder, which needs the extra s3 and the variables AWS_… "
        "that other programs for S3 read. Empty: jobs in data_folder.",
    )
    job_audio_days: float = setting(
        0.0,
        "How long the recording of a job that has ended is kept, in days, at most job_result_days. 0: deleted at once.",
        least=0,
    )
    job_result_days: float = setting(7.0, "How long a job that has ended is kept with its result, in days.", above=0)
    job_secret: str = setting("", "Secret that signs the callbacks of jobs. Needed by those of /v1/jobs.")
    callback_hosts: str = setting(
        "",
        "Hosts whose addresses clients may name for callbacks, written as in url_hosts. Empty: none.",
    )

    @property
    def setting_of_keys(self) -> str:
        """See `PluginSettings.setting_of_keys`."""
        return "database_keys" if self.database_keys else ""

    @property
    def uses_database(self) -> bool:
        """Whether the service keeps anything over a restart."""
        return self.jobs or self.database_keys

    @property
    def data_path(self) -> Path:
        """The folder for what the service keeps over a restart."""
        return folder_of("data_folder", self.data_folder) if self.data_folder else state_folder()

    def check(self, settings: Settings) -> None:
        """Check these settings.

        Raises:
            SettingsError: a value is not valid, or has no effect without another one.
        """
        if self.database_url:
            database_address(self.database_url)
        seals_of_file(self.secret_keys_file)
        for name in ("data_folder", "job_spool"):
            folder_of(name, getattr(self, name))
        check_place(self.job_spool)
        check_hosts("callback_hosts", self.callback_hosts)
        if not self.jobs:
            for name in ("job_spool", "job_secret", "callback_hosts"):
                if getattr(self, name):
                    raise SettingsError(f"{name}: expected jobs with it, as nothing else uses it")
        elif self.job_audio_days > self.job_result_days:
            # A job is kept as long as its recording, which nothing else knows.
            expected = f"at most job_result_days, {self.job_result_days:g}"
            raise SettingsError(f"job_audio_days: expected {expected}, got {self.job_audio_days:g}")
