"""Fetches checkpoints from the Hugging Face hub: of a repository only what is needed, at one revision, into the cache.

The library huggingface_hub reads the environment: HF_TOKEN, HF_HOME, HF_HUB_OFFLINE, HF_ENDPOINT and others.
"""

import errno
import logging
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

from tutti_server.engine.checkpoint.catalog import EMBEDDED_MODEL, similar_names
from tutti_server.engine.checkpoint.layout import CONFIGURATION_FILES, describe_other_format, find_weights, listed_files
from tutti_server.engine.errors import CheckpointError

logger = logging.getLogger(__name__)

LOOK_UP_TIMEOUT_S = 10.0
"""How long the hub may take to answer what a repository holds, in seconds. Then the copy in the cache is used."""

_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True, slots=True)
class HubName:
    """The name of a model on the hub."""

    repository: str
    """The owner and the name, such as `openai/whisper-small`."""
    revision: str | None = None
    """A branch, a tag or a commit; `None` is the branch `main`."""

    @classmethod
    def parse(cls, name: str) -> "HubName | None":
        """Read `owner/name` or `owner/name@revision`; `None` if the text has neither form."""
        repository, at, revision = name.partition("@")
        is_path = repository.startswith((".", "~", "/"))
        if is_path or repository.count("/") != 1 or not all(repository.split("/")) or bool(at) != bool(revision):
            return None
        return cls(repository, revision or None)

    def __str__(self) -> str:
        return f"{self.repository}@{self.revision}" if self.revision else self.repository


def fetch(name: HubName, check: Callable[[Path, str], object]) -> Path:
    """Fetch what is not in the cache, and return the folder in the cache.

    Ctrl-C ends a download at once if this is called in the main thread.

    Args:
        check: reads the configuration in the folder, for the weights of this name, and raises `CheckpointError` if it
            is of no use. It is called before the weights are fetched.

    Raises:
        CheckpointError: the model cannot be fetched and is not in the cache, or has no weights that can be loaded.
    """
    # Imported here because the import is slow, and only names on the hub need it.
    from huggingface_hub.errors import HFValidationError, RevisionNotFoundError
    from huggingface_hub.errors import HTTPError as TransportError

    cached = _find_in_cache(name)
    if cached and _COMMIT.fullmatch(name.revision or ""):
        return cached
    try:
        return _download(name, check)
    except HFValidationError as error:
        raise CheckpointError(f"{name}: expected a name on the hub such as openai/whisper-small; {error}") from error
    except (TransportError, OSError) as error:
        if cached and not isinstance(error, RevisionNotFoundError):
            logger.warning("%s Using the copy in the cache, %s", _explain(name, error), cached)
            return cached
        raise CheckpointError(_explain(name, error)) from error


def fetch_file(name: HubName, ending: str) -> Path:
    """Fetch the one file of a repository that has this ending, if the cache lacks it, and return where it lies there.

    Without a network the file in the cache is used.

    Raises:
        CheckpointError: it cannot be fetched and is not in the cache, or there is not exactly one such file.
    """
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import HFValidationError, RevisionNotFoundError
    from huggingface_hub.errors import HTTPError as TransportError

    elsewhere = "download it on a machine with a network and give its path"
    try:
        info = HfApi().model_info(name.repository, revision=name.revision, timeout=LOOK_UP_TIMEOUT_S)
        files = sorted(file.rfilename for file in info.siblings or () if file.rfilename.endswith(ending))
        if len(files) == 1:
            with _without_progress_bars():
                # First by its commit, as in `_download`.
                hf_hub_download(name.repository, files[0], revision=info.sha or name.revision)
                return Path(hf_hub_download(name.repository, files[0], revision=name.revision))
    except (TransportError, HFValidationError, OSError) as error:
        reason, cached = _explain(name, error, elsewhere), _find_file_in_cache(name, ending)
        if cached and not isinstance(error, RevisionNotFoundError):
            logger.warning("%s Using the copy in the cache, %s", reason, cached)
            return cached
        raise CheckpointError(reason) from error
    raise CheckpointError(f"{name}: expected one file that ends with {ending}, got {', '.join(files) or 'none'}")


def _find_file_in_cache(name: HubName, ending: str) -> Path | None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        folder = snapshot_download(name.repository, revision=name.revision, local_files_only=True)
    except (HFValidationError, OSError):
        return None
    return next(Path(folder).rglob(f"*{ending}"), None)


def _download(name: HubName, check: Callable[[Path, str], object]) -> Path:
    from huggingface_hub import HfApi, hf_hub_download, try_to_load_from_cache

    info = HfApi().model_info(name.repository, revision=name.revision, timeout=LOOK_UP_TIMEOUT_S, files_metadata=True)
    sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
    weights = find_weights(sizes)
    if weights is None:
        found = describe_other_format(sizes) or f"no weights; its files are {', '.join(sorted(sizes)) or 'none'}"
        raise CheckpointError(f"{name}: expected a Whisper checkpoint, got {found}")
    if "config.json" not in sizes:
        raise CheckpointError(f"{name}: config.json: missing; the repository of a Whisper checkpoint needs it")
    with _without_progress_bars():
        folder = Path(hf_hub_download(name.repository, "config.json", revision=info.sha or name.revision)).parent
        is_index = weights.endswith(".json")
        for file in (*CONFIGURATION_FILES[1:], *([weights] if is_index else [])):
            if file in sizes:
                hf_hub_download(name.repository, file, revision=folder.name)
    check(folder, weights)
    files = listed_files(folder / weights) if is_index else [weights]
    absent = [
        file
        for file in files
        if not isinstance(try_to_load_from_cache(name.repository, file, revision=folder.name), str)
    ]
    if absent:
        n_bytes = sum(sizes.get(file, 0) for file in absent)
        _check_disk_space(folder, n_bytes)
        logger.info("Fetching %s from the hub: %s, %.0f MB", name, ", ".join(absent), n_bytes / 1e6)
    for file in absent:
        hf_hub_download(name.repository, file, revision=folder.name)
    # Now the cache notes which commit the revision names: until it is complete there, that is the one before.
    hf_hub_download(name.repository, "config.json", revision=name.revision)
    return folder


def _find_in_cache(name: HubName) -> Path | None:
    """The folder of the model in the cache, if it is complete there."""
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        config = try_to_load_from_cache(name.repository, "config.json", revision=name.revision)
    except HFValidationError:
        return None
    if not isinstance(config, str):
        return None
    folder = Path(config).parent
    weights = find_weights({file.name for file in folder.iterdir()})
    if weights is None:
        return None
    files = listed_files(folder / weights) if weights.endswith(".json") else [weights]
    return folder if all((folder / file).exists() for file in files) else None


def _check_disk_space(folder: Path, n_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if n_bytes > free:
        raise OSError(errno.ENOSPC, f"{n_bytes / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free")


def _explain(name: HubName, error: Exception, elsewhere: str = "") -> str:
    """One sentence on why a model cannot be fetched, and what to do; `elsewhere` is what to do without a network."""
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import (
        FileMetadataError,
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if isinstance(error, LocalEntryNotFoundError) and isinstance(error.__cause__, Exception):
        error = error.__cause__
    hub = f"the hub at {constants.ENDPOINT}"
    page = f"{constants.ENDPOINT}/{name.repository}"
    elsewhere = (
        elsewhere or f"download the model on a machine with a network and give its folder, or use {EMBEDDED_MODEL}"
    )
    match error:
        case GatedRepoError():
            found = "the account of your token has no access" if get_token() else "there is no token"
            reason = (
                f"the model is gated, and {found}; accept its conditions at {page}, and set HF_TOKEN to a token of the "
                "same account"
            )
        case RepositoryNotFoundError():
            reason = "expected a folder or a model on the hub, found neither; if the model is private, set HF_TOKEN"
            reason += similar_names(name.repository)
        case RevisionNotFoundError():
            reason = f"expected a branch, a tag or a commit of {page}, got {name.revision!r}"
        case HfHubHTTPError() if error.response.status_code == HTTPStatus.UNAUTHORIZED:
            reason = f"{hub} refuses the token; set HF_TOKEN to one that is valid, or to none"
        case HfHubHTTPError():
            reason = f"{hub} answered with status {error.response.status_code}; try again later"
        case OfflineModeIsEnabled():
            cache = constants.HF_HUB_CACHE
            reason = f"HF_HUB_OFFLINE is set, and the model is not in the cache {cache}; unset it, {elsewhere}"
        case FileMetadataError():
            reason = f"{hub} does not answer as a hub does; correct HF_ENDPOINT, or the settings of your proxy"
        case OSError(errno=errno.ENOSPC | errno.EDQUOT):
            reason = (
                f"the disk is too full to fetch it into {constants.HF_HUB_CACHE}: {error.strerror}; make room, or set "
                "HF_HOME to a folder on another disk"
            )
        case OSError(errno=int(), filename=str(file)):
            reason = f"the cache cannot be written: {error.strerror}: {file}; set HF_HOME to a folder of your own"
        case _:
            reason = (
                f"it is not in the local cache, and the download from {hub} failed ({_first_line(error)}); try again, "
                f"{elsewhere}"
            )
    return f"{name}: {reason}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    """Small files need no bar. The environment may have decided on bars already."""
    from huggingface_hub import constants
    from huggingface_hub.utils.tqdm import disable_progress_bars, enable_progress_bars

    if constants.HF_HUB_DISABLE_PROGRESS_BARS is not None:
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()
