"""A PostgreSQL of its own for the tests that need one: Debian's `postgresql`, on a Unix socket."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain, count
from pathlib import Path

import pytest

STOP_TIMEOUT_S = 20
SERVER_USER = "postgres"
"""PostgreSQL refuses to run as root; Debian's package has made this user for it."""


class PostgresServer:
    """A server with no other users, which forgets nothing that it has confirmed when it is killed."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._programs = programs
        self._folder = folder
        self._numbers = count()
        self._run("initdb", "--pgdata", f"{folder}/data", "--username", "tutti", "--auth", "trust", "--no-sync")

    def start(self) -> None:
        """Start the server, and return when it accepts connections."""
        # What a killed process has written is in the kernel. To wait for the disk is for losses of power: after a kill,
        # a busy disk would take a minute for the files of all databases.
        options = f"-c listen_addresses= -c fsync=off -k {self._folder}"
        log = f"{self._folder}/log"
        self._run("pg_ctl", "start", "--wait", "--pgdata", f"{self._folder}/data", "--log", log, "--options", options)

    def kill(self) -> None:
        """Kill the server. A second call has no effect."""
        self._run("pg_ctl", "stop", "--pgdata", f"{self._folder}/data", "--mode", "immediate", check=False)

    def new_database(self) -> str:
        """The address of a database that is empty."""
        name = f"test_{next(self._numbers)}"
        self._run("createdb", "--host", f"{self._folder}", "--username", "tutti", name)
        return f"postgresql+psycopg://tutti@/{name}?host={self._folder}"

    def copy_database(self, source: str, target: str) -> None:
        """Make a database a copy of another one, as when a backup is made or restored. Both lose their connections."""
        statements = (
            f"ALTER DATABASE {source} ALLOW_CONNECTIONS false",
            f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{source}'",
            f"DROP DATABASE IF EXISTS {target} WITH (FORCE)",
            f"CREATE DATABASE {target} TEMPLATE {source}",
            f"ALTER DATABASE {source} ALLOW_CONNECTIONS true",
        )
        commands = chain.from_iterable(("--command", each) for each in statements)
        self._run("psql", "--host", f"{self._folder}", "--username", "tutti", "--dbname", "postgres", *commands)

    def _run(self, program: str, *arguments: str, check: bool = True) -> None:
        user = SERVER_USER if os.geteuid() == 0 else None
        # Into a file: the server keeps the output of `pg_ctl` open.
        with (self._folder / "output").open("w") as output:
            done = subprocess.run(
                [f"{self._programs / program}", *arguments],
                user=user,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        if check and done.returncode:
            pytest.fail(f"{program}: {(self._folder / 'output').read_text()}")


def _programs() -> Path | None:
    """The folder of the newest PostgreSQL. Debian does not put it on the path, where others may have a part of it."""
    debian = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None, key=lambda each: float(each.parent.name))
    found = shutil.which("createdb")
    return debian or (Path(found).parent if found else None)


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """Run a server while the context is open.

    Skips the test without PostgreSQL; fails it where `TUTTI_REQUIRE_POSTGRES=1` says that it must be there.
    """
    programs = _programs()
    if programs is None:
        problem = "PostgreSQL is not installed: apt-get install postgresql"
        if os.environ.get("TUTTI_REQUIRE_POSTGRES") == "1":
            pytest.fail(problem)
        pytest.skip(problem)
    # Not below the test's own folder: the path of a Unix socket is short, and another user must reach it.
    folder = Path(tempfile.mkdtemp(prefix="tutti-postgres-"))
    try:
        folder.chmod(0o755)
        if os.geteuid() == 0:
            user = pwd.getpwnam(SERVER_USER)
            os.chown(folder, user.pw_uid, user.pw_gid)
        server = PostgresServer(programs, folder)
        try:
            server.start()
            yield server
        finally:
            server.kill()
    finally:
        # Databases are thousands of files: on a busy disk it takes minutes to delete them, for which no test waits.
        subprocess.run(["sh", "-c", 'rm -rf "$0" &', str(folder)], start_new_session=True)
