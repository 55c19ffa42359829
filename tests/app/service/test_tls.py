"""Encrypted connections: the server itself speaks https and wss to clients that trust its certificate."""

import asyncio
import logging
import os
import shutil
import ssl
import sys
from pathlib import Path

import httpx
import pytest
import trustme
from websockets.asyncio.client import connect

import tutti
from tests.app.conftest import Serve
from tests.app.dialects.openai.test_files_endpoint import wav
from tests.fakes import pcm, said, silence, speech
from tutti_server.app.errors import SettingsError
from tutti_server.app.service import tls
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.tls import load_tls

TURN = pcm(speech([1, 2, 3])) + pcm(silence(0.7))


@pytest.fixture(scope="module")
def files(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two certificates with their keys, the certificate of the authority, and files that cannot be used."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("one", "two"):
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        for part in issued.cert_chain_pems:
            part.write_to_path(str(folder / f"{name}.pem"), append=True)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    (folder / "text").write_text("not a certificate\n")
    # OpenSSL asks for the passphrase of such a key before it reads anything else of it.
    (folder / "locked.key").write_text(LOCKED_KEY)
    return {path.name: str(path) for path in folder.iterdir()}


LOCKED_KEY = """-----BEGIN RSA PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-128-CBC,00000000000000000000000000000000

AAAAAAAAAAAAAAAAAAAAAA==
-----END RSA PRIVATE KEY-----
"""


async def test_a_gateway_that_starts_again_waits_for_its_certificate(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If it ended, the service would end too. The log says what is wrong, once."""
    monkeypatch.setattr(tls, "POLL_S", 0.0)
    key = tmp_path / "key"
    key.write_text("is being written\n")
    waiting = asyncio.create_task(tls.usable_tls(Settings(tls_cert=files["one.pem"], tls_key=str(key))))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    shutil.copy(files["one.key"], key)
    assert await waiting
    assert caplog.text.count("no client is served before the certificate and its key can be used") == 1


@pytest.mark.parametrize(
    ("cert", "key", "message"),
    [
        ("missing", "one.key", "tls_cert: cannot read"),
        ("one.pem", "missing", "tls_key: cannot read"),
        ("text", "one.key", "tls_cert, tls_key: expected a certificate"),
        ("one.pem", "text", "tls_cert, tls_key: expected a certificate"),
        ("one.pem", "two.key", "KEY_VALUES_MISMATCH"),
        ("one.pem", "locked.key", "tls_key: expected a key without a passphrase"),
    ],
)
def test_files_that_cannot_be_used_stop_the_start(files: dict[str, str], cert: str, key: str, message: str) -> None:
    """The error names the file, and the start never asks for a passphrase at the terminal."""
    settings = Settings(tls_cert=files.get(cert, "no/such/file"), tls_key=files.get(key, "no/such/file"))
    with pytest.raises(SettingsError, match=message):
        load_tls(settings)


async def test_a_file_that_is_taken_away_while_it_is_loaded_leaves_the_certificate(
    files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = tmp_path / "own.pem", tmp_path / "own.key"
    shutil.copy(files["one.pem"], cert)
    shutil.copy(files["one.key"], key)
    certificate = load_tls(Settings(tls_cert=str(cert), tls_key=str(key)))
    assert certificate
    before = certificate.context
    # The context is made after the files were opened, and before they are loaded.
    monkeypatch.setattr(ssl.SSLContext, "set_alpn_protocols", lambda context, protocols: key.unlink())
    shutil.copy(files["two.pem"], cert)
    await certificate.refresh()
    assert certificate.context is before
    assert "the certificate and its key stay as they were: tls_cert, tls_key: cannot read" in caplog.text


async def test_https_and_wss_are_served(serve: Serve, files: dict[str, str], trusting: ssl.SSLContext) -> None:
    """Pages and sessions work for clients that trust the certificate, and not without TLS."""
    server = await serve(tls_cert=files["one.pem"], tls_key=files["one.key"])
    async with httpx.AsyncClient(verify=trusting) as client:
        assert (await client.get(f"https://{server.address}/readyz")).status_code == 200
        with pytest.raises(httpx.TransportError):
            await client.get(f"http://{server.address}/readyz")
    async with tutti.connect(f"https://{server.address}", encoding="pcm_f32le", ssl=trusting) as session:
        await session.send(TURN)
        await session.stop()
        texts = [event.text async for event in session if isinstance(event, tutti.Utterance)]
    assert texts == [said([1, 2, 3])]
    with pytest.raises(ssl.SSLCertVerificationError):
        async with connect(f"wss://{server.address}/v1/stream"):
            pass


async def test_a_renewed_certificate_is_used_without_a_restart(
    serve: Serve, files: dict[str, str], trusting: ssl.SSLContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """For new connections. Between its two files, and with files that cannot be used, the old one stays."""
    caplog.set_level(logging.INFO, "tutti_server.app.service.followed_files")
    own = {"tls_cert": tmp_path / "own.pem", "tls_key": tmp_path / "own.key"}

    def install(name: str) -> None:
        # As programs that renew certificates do it: the new file takes the place of the old one.
        path = own["tls_key" if name.endswith("key") else "tls_cert"]
        shutil.copy(files[name], path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)

    install("one.pem")
    install("one.key")
    server = await serve(tls_cert=str(own["tls_cert"]), tls_key=str(own["tls_key"]))
    certificate = server.server._certificate
    assert certificate

    async def shown() -> bytes:
        host, port = server.address.split(":")
        _, writer = await asyncio.open_connection(host, int(port), ssl=trusting)
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        return shown

    def der(name: str) -> bytes:
        first, _, _ = Path(files[name]).read_text().partition("-----END CERTIFICATE-----")
        return ssl.PEM_cert_to_DER_cert(f"{first}-----END CERTIFICATE-----")

    assert await shown() == der("one.pem")
    for name, expected in (("two.pem", "one.pem"), ("two.key", "two.pem"), ("text", "two.pem")):
        install(name)
        await certificate.refresh()
        assert await shown() == der(expected), name
    said_in_log = [record.getMessage() for record in caplog.records]
    assert [text.split(":")[0] for text in said_in_log] == [
        "the certificate and its key stay as they were",
        f"the certificate and its key were read again from {own['tls_cert']}, {own['tls_key']}",
        "the certificate and its key stay as they were",
    ]


async def test_the_files_are_followed_while_the_server_runs(
    serve: Serve, files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = asyncio.Event()
    monkeypatch.setattr("tutti_server.app.service.followed_files.POLL_S", 0.0)

    async def refresh(self: tls.Certificate) -> None:
        looked.set()

    monkeypatch.setattr(tls.Certificate, "refresh", refresh)
    await serve(tls_cert=files["one.pem"], tls_key=files["one.key"])
    await looked.wait()


@pytest.mark.default
async def test_the_clients_command_line_trusts_the_given_authority(
    serve: Serve, files: dict[str, str], tmp_path: Path
) -> None:
    server = await serve(tls_cert=files["one.pem"], tls_key=files["one.key"])
    (tmp_path / "speech.wav").write_bytes(wav(speech([1, 2, 3])))
    arguments = (str(tmp_path / "speech.wav"), "--url", f"wss://{server.address}", "--ca-file", files["ca.pem"])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tutti", *arguments),
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith("TUTTI_")},
    )
    out, _ = await process.communicate()
    assert process.returncode == 0 and said([1, 2, 3]) in out.decode()
