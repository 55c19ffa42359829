"""A stand-in for the Hugging Face hub on the loopback: the requests of `huggingface_hub`, answered from folders.

Programs reach it through the environment variables of `StandInHub.environment`, and so do the examples of a test that
starts processes. In the process of the test itself, use `StandInHub.use`.

    with stand_in_hub() as hub:
        hub.add("owner/name", folder)
        subprocess.run(["tutti", "serve", "--model", "owner/name"], env=os.environ | hub.environment(cache))
"""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

LARGE_BYTES = 10_000
"""Files from this size on are answered with a redirect, as the hub answers for files in its large-file storage."""

_API = re.compile(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")
_BLOB = re.compile(r"/storage/([0-9a-f]{64})")


@dataclass(kw_only=True)
class Repository:
    """A model of the stand-in. A test may change its fields at any time."""

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    """The files of each commit."""
    references: dict[str, str] = field(default_factory=dict)
    """The commit of each branch and tag."""
    token: str | None = None
    """The token that a gated model asks for; `None`: everyone may fetch it."""
    is_private: bool = False
    """Whether the model does not seem to exist without its token. A gated model shows its list of files to everyone."""
    truncated: set[str] = field(default_factory=set)
    """Names of files that are sent without their second half."""
    stalled: set[str] = field(default_factory=set)
    """Names of large files whose second half is never sent, although the connection stays open."""
    reported_sizes: dict[str, int] = field(default_factory=dict)
    """Sizes in the list of files that differ from the true ones, in bytes."""


class StandInHub:
    """Its repositories, and the requests that it has answered."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.repositories: dict[str, Repository] = {}
        self.requests: list[tuple[str, str]] = []
        """`(method, path)` of each request, in order."""
        self.fault: int | None = None
        """The status with which every request is answered; `None` while the hub is well."""
        self.has_stalled = threading.Event()
        """Set when half of a stalled file has been sent."""
        self.is_closing = threading.Event()

    def add(self, name: str, folder: Path, *references: str) -> Repository:
        """Add a commit with the files of a folder, and let these branches and tags name it, or else the branch main."""
        files = {
            str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()
        }
        repository = self.repositories.setdefault(name, Repository())
        commit = hashlib.sha1(repr(sorted(files.items())).encode()).hexdigest()
        repository.commits[commit] = files
        repository.references.update(dict.fromkeys(references or ("main",), commit))
        return repository

    def environment(self, cache: Path, token: str = "") -> dict[str, str]:
        """The environment of a process that uses this hub and keeps what it fetches in `cache`."""
        return {"HF_ENDPOINT": self.url, "HF_HOME": str(cache), "HF_TOKEN": token, "HF_HUB_DISABLE_TELEMETRY": "1"}

    def use(self, monkeypatch: pytest.MonkeyPatch, cache: Path, token: str = "") -> None:
        """Let this process use this hub until the test ends. `huggingface_hub` reads the environment when imported."""
        from huggingface_hub import constants

        for name, value in self.environment(cache, token).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(constants, "ENDPOINT", self.url)
        template = self.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache / "token"))

    def fetched(self) -> set[str]:
        """The names of the files whose bytes were requested."""
        paths = [path for method, path in self.requests if method == "GET"]
        return {match[3] for path in paths if (match := _FILE.fullmatch(path))} | {
            name for path in paths if (match := _BLOB.fullmatch(path)) for _, name, _ in self.find(match[1])
        }

    def find(self, digest: str) -> Iterator[tuple[Repository, str, bytes]]:
        """The files with this content: their repository, their name and their content."""
        for repository in self.repositories.values():
            for files in repository.commits.values():
                for name, content in files.items():
                    if _digest(content) == digest:
                        yield repository, name, content


@contextmanager
def stand_in_hub() -> Iterator[StandInHub]:
    """Run a stand-in on a free port of the loopback."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        hub = StandInHub(f"http://127.0.0.1:{server.server_port}")
        server.hub = hub  # type: ignore[attr-defined]  # the handler's only way to it
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield hub
        finally:
            hub.is_closing.set()
            server.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _answer_request(self) -> None:
        hub: StandInHub = self.server.hub  # type: ignore[attr-defined]  # set by `stand_in_hub`
        path = urlsplit(self.path).path
        hub.requests.append((self.command, unquote(path)))
        if hub.fault:
            self._answer(HTTPStatus(hub.fault), b"")
        elif match := _API.fullmatch(path):
            self._answer_list(hub, match[1], unquote(match[2] or "main"))
        elif match := _FILE.fullmatch(path):
            self._answer_file(hub, match[1], unquote(match[2]), unquote(match[3]))
        elif match := _BLOB.fullmatch(path):
            self._answer_blob(hub, match[1])
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"")

    do_GET = do_HEAD = _answer_request  # noqa: N815  # names of the base class

    def _answer_list(self, hub: StandInHub, name: str, revision: str) -> None:
        found = self._find(hub, name, revision, is_list=True)
        if found is None:
            return
        repository, commit = found
        sizes = {file: len(content) for file, content in repository.commits[commit].items()} | repository.reported_sizes
        siblings = [{"rfilename": file, "size": size} for file, size in sizes.items()]
        content = {"id": name, "modelId": name, "sha": commit, "private": repository.is_private, "siblings": siblings}
        self._answer(HTTPStatus.OK, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _answer_file(self, hub: StandInHub, name: str, revision: str, file: str) -> None:
        found = self._find(hub, name, revision, is_list=False)
        if found is None:
            return
        repository, commit = found
        content = repository.commits[commit].get(file)
        headers = {"X-Repo-Commit": commit}
        if content is None:
            self._answer(HTTPStatus.NOT_FOUND, b"", headers | {"X-Error-Code": "EntryNotFound"})
        elif len(content) < LARGE_BYTES:
            sent = content[: len(content) // 2] if file in repository.truncated and self.command == "GET" else content
            self._answer(HTTPStatus.OK, sent, headers | {"ETag": f'"{_digest(content)[:40]}"'})
        else:
            digest = _digest(content)
            linked = {"X-Linked-Size": str(len(content)), "X-Linked-Etag": f'"{digest}"'}
            # On another host, as on the hub: clients do not send their token there.
            storage = hub.url.replace("127.0.0.1", "localhost")
            location = {"Location": f"{storage}/storage/{digest}"}
            self._answer(HTTPStatus.FOUND, b"", headers | linked | location)

    def _answer_blob(self, hub: StandInHub, digest: str) -> None:
        repository, name, content = next(hub.find(digest), (None, "", b""))
        half = content[: len(content) // 2]
        if repository is None:
            self._answer(HTTPStatus.NOT_FOUND, b"")
        elif name in repository.stalled:
            self._answer(HTTPStatus.OK, half, {"ETag": f'"{digest}"'}, length=len(content))
            hub.has_stalled.set()
            hub.is_closing.wait()
        else:
            sent = half if name in repository.truncated else content
            self._answer(HTTPStatus.OK, sent, {"ETag": f'"{digest}"'})

    def _find(self, hub: StandInHub, name: str, revision: str, *, is_list: bool) -> tuple[Repository, str] | None:
        """The repository and the commit; `None` if the request was answered with an error."""
        repository = hub.repositories.get(name)
        is_known = repository is not None and (not repository.token or self._token == repository.token)
        if repository is None or (repository.is_private and not is_known):
            # Without a token, the hub does not tell whether there is such a repository.
            status = HTTPStatus.NOT_FOUND if self._token else HTTPStatus.UNAUTHORIZED
            self._answer(status, b"", {"X-Error-Code": "RepoNotFound"})
        elif not is_known and not is_list:
            status = HTTPStatus.FORBIDDEN if self._token else HTTPStatus.UNAUTHORIZED
            self._answer(status, b"", {"X-Error-Code": "GatedRepo"})
        elif (commit := repository.references.get(revision, revision)) in repository.commits:
            return repository, commit
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"", {"X-Error-Code": "RevisionNotFound"})
        return None

    @property
    def _token(self) -> str:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def _answer(
        self, status: HTTPStatus, content: bytes, headers: dict[str, str] | None = None, length: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
