"""A store that speaks the part of S3's protocol that the spool uses, in threads of this process.

Unlike most stand-ins it checks signatures: each request must be signed with its key, and so must its body.
"""

import hashlib
import hmac
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qsl, quote, unquote
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest

KEY, SECRET, BUCKET = "tutti-key", "tutti-secret", "recordings"
MIN_PART_BYTES = 5 << 20
"""S3 refuses smaller parts but the last one."""

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/((\d+)/([^/]+)/s3/aws4_request), SignedHeaders=([^,]+), Signature=(\w+)"
)


@dataclass
class Stored:
    """An object of the bucket."""

    content: bytes
    changed: datetime


class S3Server:
    """A store with one bucket and one key."""

    def __init__(self) -> None:
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        """Parts of uploads that were not completed."""
        self.requests: list[str] = []
        """Methods and paths, with the query."""
        self.failing = 0
        """A status with which every request is answered; 0 for none."""
        self.page_size = 1000
        self.lock = Lock()
        self.numbers = count(1)
        self.url = ""

    @contextmanager
    def running(self) -> Iterator["S3Server"]:
        """Serve while the context is open."""
        handler = type("Handler", (_Handler,), {"store": self})
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        server.daemon_threads = True
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def environment(self, **changes: str) -> dict[str, str]:
        """The variables for this store."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "eu-central-1",
            **changes,
        }

    def use(self, monkeypatch: pytest.MonkeyPatch, **changes: str) -> None:
        """Set the variables for this store."""
        for name, value in self.environment(**changes).items():
            monkeypatch.setenv(name, value)


class _Refused(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class _Handler(BaseHTTPRequestHandler):
    store: S3Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            # Its process was killed.
            self.close_connection = True

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        with self.store.lock:
            self.store.requests.append(f"{self.command} {self.path}")
            try:
                if self.store.failing:
                    raise _Refused(self.store.failing, "Failing")
                self._check_signature(body)
                status, content, headers = self._answer(body)
            except _Refused as error:
                status, headers = error.status, {}
                content = f"<Error><Code>{error.code}</Code><Message>{error.code}</Message></Error>".encode()
        self.send_response(status)
        length = headers.pop("content-length", str(len(content)))
        for name, value in {**headers, "content-length": length}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve  # noqa: N815  # names of the base class

    def _check_signature(self, body: bytes) -> None:
        """Source: Amazon S3, Signature Version 4, with the signature in the header Authorization."""
        match = _AUTHORIZATION.fullmatch(self.headers.get("authorization", ""))
        if match is None or match[1] != KEY:
            raise _Refused(403, "InvalidAccessKeyId")
        _, scope, day, region, names, signature = match.groups()
        if self.headers["x-amz-content-sha256"] != hashlib.sha256(body).hexdigest():
            raise _Refused(400, "XAmzContentSHA256Mismatch")
        path, _, query = self.path.partition("?")
        pairs = sorted((quote(name, "-_.~"), quote(value, "-_.~")) for name, value in parse_qsl(query, True))
        signed = "".join(f"{name}:{self.headers[name].strip()}\n" for name in names.split(";"))
        digest = self.headers["x-amz-content-sha256"]
        request = "\n".join(
            (self.command, path, "&".join(f"{name}={value}" for name, value in pairs), signed, names, digest)
        )
        hashed = hashlib.sha256(request.encode()).hexdigest()
        text = "\n".join(("AWS4-HMAC-SHA256", self.headers["x-amz-date"], scope, hashed))
        key = f"AWS4{SECRET}".encode()
        for each in (day, region, "s3", "aws4_request", text):
            key = hmac.digest(key, each.encode(), "sha256")
        if key.hex() != signature:
            raise _Refused(403, "SignatureDoesNotMatch")

    def _answer(self, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        path, _, text = self.path.partition("?")
        query = dict(parse_qsl(text, keep_blank_values=True))
        bucket, _, name = unquote(path[1:]).partition("/")
        if bucket != BUCKET:
            raise _Refused(404, "NoSuchBucket")
        match self.command:
            case "GET" if not name:
                return 200, self._list(query), {}
            case "GET" | "HEAD":
                return self._read(name)
            case "PUT":
                return self._write(name, query, body)
            case "POST":
                return 200, self._upload(name, query, body), {}
            case "DELETE":
                self.store.uploads.pop(query["uploadId"]) if "uploadId" in query else self.store.objects.pop(name, None)
                return 204, b"", {}
        raise _Refused(405, "MethodNotAllowed")

    def _list(self, query: dict[str, str]) -> bytes:
        prefix, after = query.get("prefix", ""), query.get("continuation-token", query.get("start-after", ""))
        names = sorted(each for each in self.store.objects if each.startswith(prefix) and each > after)
        page = names[: self.store.page_size]
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{self.store.objects[name].changed:%Y-%m-%dT%H:%M:%S.000Z}"
            f"</LastModified><ETag>x</ETag><Size>{len(self.store.objects[name].content)}</Size></Contents>"
            for name in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if len(names) > len(page) else ""
        return f"<ListBucketResult>{contents}{token}</ListBucketResult>".encode()

    def _read(self, name: str) -> tuple[int, bytes, dict[str, str]]:
        stored = self.store.objects.get(name)
        if stored is None:
            raise _Refused(404, "NoSuchKey")
        headers = {"etag": '"x"', "last-modified": f"{stored.changed:%a, %d %b %Y %H:%M:%S GMT}"}
        if self.command == "HEAD" or "range" not in self.headers:
            return 200, stored.content, headers
        first, last = (int(each) for each in self.headers["range"].removeprefix("bytes=").split("-"))
        content = stored.content[first : last + 1]
        if not content:
            raise _Refused(416, "InvalidRange")
        headers["content-range"] = f"bytes {first}-{first + len(content) - 1}/{len(stored.content)}"
        return 206, content, headers

    def _write(self, name: str, query: dict[str, str], body: bytes) -> tuple[int, bytes, dict[str, str]]:
        if "uploadId" in query:
            self.store.uploads[query["uploadId"]][int(query["partNumber"])] = body
        else:
            self.store.objects[name] = Stored(body, datetime.now(UTC))
        return 200, b"", {"etag": f'"{hashlib.md5(body).hexdigest()}"'}

    def _upload(self, name: str, query: dict[str, str], body: bytes) -> bytes:
        if "uploads" in query:
            id_ = f"upload-{next(self.store.numbers)}"
            self.store.uploads[id_] = {}
            return f"<InitiateMultipartUploadResult><UploadId>{id_}</UploadId></InitiateMultipartUploadResult>".encode()
        parts = self.store.uploads.pop(query["uploadId"])
        pieces = [self._part(parts, each) for each in ElementTree.fromstring(body)]
        if any(len(each) < MIN_PART_BYTES for each in pieces[:-1]):
            raise _Refused(400, "EntityTooSmall")
        self.store.objects[name] = Stored(b"".join(pieces), datetime.now(UTC))
        return b'<CompleteMultipartUploadResult><ETag>"x"</ETag></CompleteMultipartUploadResult>'

    @staticmethod
    def _part(parts: dict[int, bytes], element: Any) -> bytes:
        found = {each.tag.rpartition("}")[2]: each.text for each in element}
        part = parts[int(found["PartNumber"])]
        if found["ETag"].strip('"') != hashlib.md5(part).hexdigest():
            raise _Refused(400, "InvalidPart")
        return part
