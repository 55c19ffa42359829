"""The operator's settings: defaults, then environment (`TUTTI_…`), then flags. Read once, in `app/__main__.py`."""

import ipaddress
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import urlsplit

from app.errors import SettingsError
from app.session.events import Limits
from app.session.session import SessionConfig
from app.session.stabilizer import POLICIES

ENV_PREFIX = "TUTTI_"


def _setting(default: object, meaning: str) -> Any:
    """A field whose meaning is shown by `--help`."""
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True, slots=True)
class Settings:
    """Every field is a flag of `tutti serve` (`--max-sessions`) and a variable (`TUTTI_MAX_SESSIONS`)."""

    host: str = _setting("127.0.0.1", "Address to listen on. A public one needs API keys, or --allow-anyone.")
    port: int = _setting(8000, "Port to listen on; 0 takes a free one.")
    tls_cert: str = _setting("", "PEM file with the certificate and its chain; serves https and wss instead.")
    tls_key: str = _setting("", "PEM file with the certificate's private key, without a passphrase.")
    api_keys: str = _setting("", "Keys that clients must show, separated by commas. Empty: nobody is asked.")
    allow_anyone: bool = _setting(False, "Serve a public address without keys.")
    model: str = _setting(
        "tutti-demo", "A model from `tutti models`, a folder with a Hugging Face Whisper checkpoint, or a hub name."
    )
    device: str = _setting("auto", "cpu, cuda, or auto: a GPU where there is one.")
    dtype: str = _setting("auto", "float32, bfloat16, float16, or auto: what suits the device.")
    encoder_dtype: str = _setting(
        "auto", "fp8: products of the encoder in 8 bits, faster and less exact, on GPUs that have them; auto: as dtype."
    )
    audio_context: str = _setting(
        "auto",
        "full: encode whole 30 s windows; auto: only their audio, where the checkpoint was trained for that; interims: "
        "so with any checkpoint, but its finals whole.",
    )
    kernels: str = _setting(
        "auto",
        "torch; on NVIDIA GPUs in 16 bits triton: our own; flashinfer: its attention among them; auto: the fastest.",
    )
    threads: int = _setting(0, "CPU threads of the engine; 0 is one per core.")
    slots: int = _setting(0, "Sequences decoded at the same time; 0 is 32 on the CPU, and on a GPU as many as fit.")
    gpu_memory_fraction: float = _setting(
        0.85, "How much of the memory that is free on the GPU once the model is loaded the slots may take."
    )
    max_encode_batch: int = _setting(8, "Most windows in one encoder call.")
    max_wait_ms: float = _setting(
        5.0, "How long the batcher waits for more windows before it encodes fewer than a full batch."
    )
    gateways: int = _setting(
        0, "Processes that serve the clients, beside one for the engine; 0 is one process for everything."
    )
    max_sessions: int = _setting(32, "Live sessions at the same time; one more is told to come back later.")
    max_final_wait_s: float = _setting(
        1.0,
        "No more live sessions are taken in beside others while finals wait longer than this for the engine, on "
        "average of 10 s.",
    )
    max_uploads: int = _setting(8, "File transcriptions at the same time; one more is told to come back later.")
    max_upload_mb: int = _setting(512, "Largest file for transcription, in megabytes.")
    interim_interval_ms: int = _setting(
        350, "Least audio between two interims of an utterance; more where the engine is slow to answer."
    )
    stability: str = _setting(
        "agreement",
        "What makes text of an interim stable. agreement: the next one says the same; attention: the model looked at "
        "audio well before the end as it wrote it.",
    )
    max_message_kb: int = _setting(1024, "Largest WebSocket message, in KiB.")
    max_ahead_s: float = _setting(60.0, "How far a client's audio may run ahead of the clock.")
    idle_timeout_s: float = _setting(60.0, "A session that sends nothing for so long is closed.")
    send_timeout_s: float = _setting(10.0, "A client that does not read for so long is closed.")
    final_deadline_s: float = _setting(
        30.0, "A live session whose final text takes longer than this is ended, so that the client can go on elsewhere."
    )
    webhook_url: str = _setting("", "Where what is said of calls (Twilio) is posted to; nowhere if empty.")
    webhook_secret: str = _setting("", "What these posts are signed with.")
    drain_timeout_s: float = _setting(20.0, "How long a stopping server waits for sessions to get their finals.")
    log_level: str = _setting("info", "debug, info, warning or error.")

    def __post_init__(self) -> None:
        _require(0 <= self.port <= 65535, "port", "0 to 65535", self.port)
        if bool(self.tls_cert) != bool(self.tls_key):
            given, missing = ("tls_cert", "tls_key") if self.tls_cert else ("tls_key", "tls_cert")
            raise SettingsError(f"{missing}: expected a file, as {given} is set, got nothing")
        if bool(self.webhook_url) != bool(self.webhook_secret):
            given, missing = ("url", "secret") if self.webhook_url else ("secret", "url")
            raise SettingsError(f"webhook_{missing}: expected text, as webhook_{given} is set, got nothing")
        if self.webhook_url:
            _require(_is_address(self.webhook_url), "webhook_url", "an http or https address", self.webhook_url)
        for name in ("threads", "slots", "max_wait_ms", "gateways"):
            _require(getattr(self, name) >= 0, name, "0 or more", getattr(self, name))
        for name in (
            "gpu_memory_fraction",
            "max_encode_batch",
            "max_sessions",
            "max_final_wait_s",
            "max_uploads",
            "max_upload_mb",
            "max_message_kb",
            "max_ahead_s",
            "idle_timeout_s",
            "send_timeout_s",
            "final_deadline_s",
            "drain_timeout_s",
        ):
            _require(0 < getattr(self, name) < math.inf, name, "more than 0", getattr(self, name))
        _require(
            self.interim_interval_ms >= 100,
            "interim_interval_ms",
            "at least 100 (milliseconds)",
            self.interim_interval_ms,
        )
        _require(self.stability in POLICIES, "stability", f"one of {', '.join(POLICIES)}", self.stability)
        levels = ("debug", "info", "warning", "error")
        _require(self.log_level in levels, "log_level", f"one of {', '.join(levels)}", self.log_level)
        if self.api_keys and not self.keys:
            raise SettingsError("api_keys: expected keys separated by commas, got nothing but separators")
        if not (self.keys or self.allow_anyone or _is_loopback(self.host)):
            raise SettingsError(
                f"host: {self.host} can be reached by others, and no API keys are set. Set TUTTI_API_KEYS (or "
                "--api-keys), or say --allow-anyone if that is what you want"
            )

    @property
    def keys(self) -> frozenset[str]:
        return frozenset(key.strip() for key in self.api_keys.split(",") if key.strip())

    @property
    def is_encrypted(self) -> bool:
        return bool(self.tls_cert)

    @property
    def limits(self) -> Limits:
        return Limits(self.max_message_kb * 1024, self.max_ahead_s, self.idle_timeout_s)

    @property
    def session_config(self) -> SessionConfig:
        return SessionConfig(
            limits=self.limits, interim_interval_ms=self.interim_interval_ms, make_policy=POLICIES[self.stability]
        )


def check_environment(environment: Mapping[str, str]) -> None:
    """Raise `SettingsError` for a `TUTTI_…` variable that no setting has, a typing error most likely."""
    known = {ENV_PREFIX + each.name.upper() for each in fields(Settings)} | {ENV_PREFIX + "API_KEY"}
    unknown = sorted(name for name in environment if name.startswith(ENV_PREFIX) and name not in known)
    if unknown:
        raise SettingsError(f"unknown settings in the environment: {', '.join(unknown)}")


def _require(holds: bool, name: str, expected: str, got: object) -> None:
    if not holds:
        raise SettingsError(f"{name}: expected {expected}, got {got!r}")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
