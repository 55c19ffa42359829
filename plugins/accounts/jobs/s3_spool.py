"""The recordings of jobs in a bucket of S3, or of a store that speaks its protocol, by obstore (the extra `s3`).

Where the store is, and the key to it, obstore reads from the variables that other programs for S3 read, too:
`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and so on.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import IO

import obstore
from obstore.exceptions import BaseError, NotFoundError
from obstore.store import S3Store

from tutti_server.plugins.accounts.jobs.spool import AllAway, SpoolAway, is_ours

ENDPOINT_VARIABLES = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
"""The variables that name a store other than Amazon's; obstore takes the first that is set."""
CONNECT_TIMEOUT_S = 5
TIMEOUT_S = 60
"""How long one request may take, in seconds; a long recording takes several."""
RETRIED_S = 15
"""How long a request that fails is tried again, in seconds."""
PART_BYTES = 8 << 20
"""The size of the parts in which a recording is sent and fetched."""
N_PARTS = 4
"""Parts of one recording that are sent at the same time: what an upload may keep in memory."""


class S3Spool:
    """Recordings as objects below an address. See `Spool`."""

    def __init__(self, bucket: str, folder: str = "") -> None:
        """Use the objects directly below a folder of a bucket, without a request yet. Raises `SpoolAway`."""
        endpoint = next((value for name in ENDPOINT_VARIABLES if (value := os.environ.get(name))), "")
        with _os_errors():
            self._store = S3Store(
                bucket,
                prefix=folder or None,
                # Not all stores delete several objects by one request, and it is always one here.
                config={"disable_bulk_delete": True},
                client_options={
                    "timeout": timedelta(seconds=TIMEOUT_S),
                    "connect_timeout": timedelta(seconds=CONNECT_TIMEOUT_S),
                    # Without encryption only where the operator has written so.
                    "allow_http": endpoint.startswith("http://"),
                },
                retry_config={"retry_timeout": timedelta(seconds=RETRIED_S)},
            )

    def put(self, id_: str, file: IO[bytes]) -> None:
        """See `Spool`. A large recording is sent in parts, and is there when the last one is."""
        # A bucket that is not there is no missing recording.
        with _os_errors(AllAway):
            obstore.put(self._store, id_, file, chunk_size=PART_BYTES, max_concurrency=N_PARTS)

    def open(self, id_: str) -> IO[bytes]:
        """See `Spool`. The recording is copied to a file, as decoders read back and forth."""
        copy = tempfile.TemporaryFile()  # noqa: SIM115  # the caller closes it
        try:
            with self._missing(id_), _os_errors():
                n_bytes = obstore.head(self._store, id_)["size"]
                # In parts, as the time limit of a request counts until its last byte.
                for at in range(0, n_bytes, PART_BYTES):
                    end = min(at + PART_BYTES, n_bytes)
                    copy.write(obstore.get_range(self._store, id_, start=at, end=end))
            copy.seek(0)
        except BaseException:
            copy.close()
            raise
        return copy

    def delete(self, id_: str) -> None:
        """See `Spool`."""
        with suppress(FileNotFoundError), self._missing(id_), _os_errors():
            obstore.delete(self._store, id_)

    def older_than(self, age_s: float) -> Iterator[str]:
        """See `Spool`. Parts of uploads that were never finished are not among them."""
        # The store has the time of day, too.
        limit = datetime.now(UTC) - timedelta(seconds=age_s)
        with _os_errors():
            for page in obstore.list(self._store, chunk_size=1000):
                yield from (each["path"] for each in page if is_ours(each["path"]) and each["last_modified"] <= limit)

    @contextmanager
    def _missing(self, id_: str) -> Iterator[None]:
        """Let only a recording be missing: a store that says so of its bucket, or of everything, is away.

        It may have come back since it said so. Then it has the recording.
        """
        try:
            yield
        except FileNotFoundError:
            if self._has(id_):
                raise AllAway("the store said that a recording was missing, and has it") from None
            raise

    def _has(self, id_: str) -> bool:
        """Whether the store has a recording. The same answer says that the store works; else it raises `AllAway`."""
        try:
            page = next(iter(obstore.list(self._store, offset=id_[:-1], chunk_size=1)), ())
        except (BaseError, FileNotFoundError) as error:
            raise AllAway(_first_line(error)) from error
        return any(each["path"] == id_ for each in page)


@contextmanager
def _os_errors(missing: type[OSError] = FileNotFoundError) -> Iterator[None]:
    """Raise the errors of the store as those of a spool; `missing` where something is not there."""
    try:
        yield
    except (FileNotFoundError, NotFoundError) as error:
        raise missing(_first_line(error)) from error
    except BaseError as error:
        raise SpoolAway(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    """What a person needs of an error, which goes on with the state of the library."""
    return next(iter(str(error).splitlines()), type(error).__name__)
