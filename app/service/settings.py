"""The operator's settings. A flag has priority over a `TUTTI_…` variable, which has priority over the default."""

import ipaddress
import math
from collections.abc import Iterable, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from tutti_server.app.errors import SettingsError
from tutti_server.app.languages import NAMES
from tutti_server.app.service.api_keys import ApiKey, is_sent, read_api_keys
from tutti_server.app.session.messages.events import Limits
from tutti_server.app.session.text.stabilizer import POLICIES
from tutti_server.app.text_rules.redaction import KINDS, Kind
from tutti_server.engine.api import MAX_BEAM_SIZE

if TYPE_CHECKING:
    from tutti_server.app.session.core.options import SessionConfig

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

ENV_PREFIX = "TUTTI_"
"""All environment variables of the service begin with this."""
ANY = "*"
"""Stands for every name, in a list of names."""
MIN_INTERIM_INTERVAL_MS = 100
DETECTORS = ("webrtc", "silero")
LOG_LEVELS = ("debug", "info", "warning", "error")
MAX_NAME_CHARS = 100
"""The most characters of a name that the operator gives the model."""
LOG_FORMATS = ("text", "json")
AUTO = "auto"
"""The value of `engines` for one engine on each GPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """The values that a number may have, beside being finite. A bound that is `None` is none."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None

    def holds(self, value: float) -> bool:
        """Whether a value is in the range."""
        return (
            math.isfinite(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    def __str__(self) -> str:
        if self.least is not None:
            return f"{self.least:g} or more" if self.most is None else f"{self.least:g} to {self.most:g}"
        return f"more than {self.above:g}" if self.below is None else f"above {self.above:g} and below {self.below:g}"


REMOVED = {
    "gpu_memory_fraction": "it is always 0.85; slots limits the memory of decoding",
    "max_wait_ms": "it is always 5 ms",
    "min_upload_kb_per_s": "it is always 2 kB/s",
    "max_strangers": "it is always 2048",
    "max_strangers_per_address": "it is always 1024",
    "head_timeout_s": "it is always 10 s",
    "stranger_timeout_s": "it is always 30 s",
    "room_gone_s": "it is always 300 s",
    "room_history_chars": "it is always 100,000",
    "max_message_kb": "it is always 1024 KiB",
    "send_timeout_s": "it is always 10 s",
    "translate_timeout_s": "it is always 15 s",
    "translate_requests": "it is always 16",
    "url_types": "audio and video of every type are fetched, and files of no certain type",
    "url_timeout_s": "it is always 300 s",
    "cross_dtype": "cross_cache int8 is the same",
    "speaker_knows": "it is speaker_joins and 0.1 more, at most 0.99",
    "speculative_finals": "a pause is always decoded, unless the engine answers slowly",
    "max_rooms": "there may be as many as sessions; max_room_readers 0 switches rooms off",
    "allow_http_urls": "addresses in private_networks may begin with http://",
    "translate_key_file": "translate_key has the key itself",
}
"""Settings of older versions, and what stands in their place."""


def setting(
    default: object, meaning: str, choices: Iterable[str] = (), *, is_list: bool = False, **bounds: float
) -> Any:
    """Make a field of settings.

    Args:
        default: its value where the operator says nothing.
        meaning: the sentence that `--help` and the operator's page show.
        choices: its values, if it is one of a few words. The engine lists those of its own settings: `EngineConfig`.
        is_list: whether its flag may be given more than once, for values that are otherwise separated by commas.
        bounds: of a number, as `Range` has them.
    """
    values = Range(**bounds) if bounds else None
    return field(
        default=default, metadata={"help": meaning, "choices": tuple(choices), "range": values, "is_list": is_list}
    )


def check_values(settings: "Settings | PluginSettings") -> None:
    """Check that each value is one that its field allows.

    Raises:
        SettingsError: one is not.
    """
    for each in fields(settings):
        value = getattr(settings, each.name)
        if (choices := each.metadata.get("choices")) and value not in choices:
            raise SettingsError(f"{each.name}: expected one of {', '.join(choices)}, got {value!r}")
        if (allowed := each.metadata.get("range")) and not allowed.holds(value):
            raise SettingsError(f"{each.name}: expected {allowed}, got {value!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSettings:
    """The settings of a plug-in: a frozen dataclass of fields that `setting` makes, with names that no other has."""

    def __post_init__(self) -> None:
        check_values(self)

    @property
    def setting_of_keys(self) -> str:
        """The setting by which these bring API keys, so that clients need one; empty if they bring none."""
        return ""

    def check(self, settings: "Settings") -> None:
        """Check what these settings say beside those of the service. Called once, before any process starts.

        Raises:
            SettingsError: they contradict each other.
        """


_OfPlugin = TypeVar("_OfPlugin", bound=PluginSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's settings. Each field is a flag (`--max-sessions`) and a variable (`TUTTI_MAX_SESSIONS`).

    Raises:
        SettingsError: a value is out of range, or settings contradict each other.
    """

    host: str = setting(
        "127.0.0.1",
        "Address to listen on. An address that other machines can reach needs API keys, or --allow-anyone.",
    )
    port: int = setting(8000, "Port to listen on. 0 selects a free port.", least=0, most=65_535)
    tls_cert: str = setting("", "PEM file with the TLS certificate and its chain. Set it to serve https and wss.")
    tls_key: str = setting("", "PEM file with the certificate's private key, without a passphrase.")
    api_keys: str = setting("", "Keys that clients must send, separated by commas. Empty: clients need no key.")
    keys_file: str = setting(
        "",
        "TOML file with more keys, each in a table with its name, its limits (sessions, minutes_per_day, "
        "minutes_per_month, jobs), its scopes, and rooms = false if it publishes no rooms.",
    )
    redis_url: str = setting(
        "",
        "Redis or Valkey that all gateways and machines share: redis://, rediss:// or unix://. With more than one "
        "gateway it is needed by rooms, subscribers of calls, limits of keys and withdrawn client secrets. Needs the "
        "extra redis.",
    )
    metrics_need_key: bool = setting(False, "Ask for a key with the scope metrics at /metrics.")
    allow_anyone: bool = setting(False, "Allow an address that other machines can reach without API keys.")
    model: str = setting(
        "tutti-base",
        "A name from `tutti models`, such as turbo; a folder with a Whisper checkpoint of transformers or CTranslate2, "
        "a .pt file of OpenAI's package, a .bin file of whisper.cpp; or a name on the Hugging Face hub, owner/name or "
        "owner/name@revision. Given more than once, or with commas, clients choose one by its name; the first one is "
        "the default.",
        is_list=True,
    )
    model_idle_s: float = setting(
        600.0,
        "With several models: after this many seconds without a session or a file, each but the first gives its memory "
        "back. 0: never.",
        least=0,
    )
    served_model_name: str = setting(
        "",
        "Name under which clients see the first model, and after commas more names for it. Empty: the name of --model, "
        "of a folder or a file its last part.",
    )
    device: str = setting("auto", "Where the model runs. auto: on the GPU if there is one.")
    dtype: str = setting(
        "auto",
        "Number format of the model. int8: weights of 8 bits, on x86 CPUs. auto: bfloat16 on a GPU; on a CPU "
        "int8 for the published sizes of Whisper, float32 for smaller models.",
    )
    encoder_dtype: str = setting(
        "auto",
        "Number format of the encoder's matrix products. fp8: 8 bits, faster and less exact, on GPUs that support it. "
        "auto: the same as dtype.",
    )
    cross_cache: str = setting(
        "auto",
        "What is kept of encoder states for decode steps. auto: keys and values for every layer. int8: the same in 8 "
        "bits, faster for many requests, with our own kernels on NVIDIA GPUs. states: the states themselves, on Hopper "
        "and data-centre Blackwell GPUs; with large-v3 a quarter of the memory, faster from 32 requests at a time on, "
        "slower below.",
    )
    audio_context: str = setting(
        "auto",
        "How much of each 30 s window is encoded. full: all of it. auto: the part with audio, if the checkpoint was "
        "trained for that. interims: that part for interims, with any checkpoint, and all of it for finals.",
    )
    kernels: str = setting(
        "auto",
        "Which kernels run the model. torch: PyTorch's. triton: our own, on NVIDIA GPUs in 16 bits. flashinfer: our "
        "own, with FlashInfer's attention. auto: the fastest.",
    )
    threads: int = setting(
        0,
        "CPU threads of the engine; with several, of each. 0: one per core, shared out between the engines. Set it to "
        "leave cores for other programs.",
        least=0,
        most=1024,
    )
    slots: int = setting(
        0,
        "Sequences that are decoded at the same time. 0: 32 on the CPU, and as many as fit into a GPU. "
        "Each slot keeps its caches in memory; lower it to use less.",
        least=0,
    )
    max_encode_batch: int = setting(
        8, "The most windows in one encoder call. Raise it on a large GPU with many sessions or files.", above=0
    )
    engines: str = setting(
        "1",
        "Engines, each a process. Up to as many as GPUs have one each; twice as many, or three times and so on, share "
        "them equally; without GPUs, each has its part of the CPU threads. auto: one for each visible GPU. With more "
        "than one, at least one gateway serves the clients.",
    )
    gateways: int = setting(
        0,
        "Processes that serve clients, beside those of the engines. 0: one process for everything, or one gateway "
        "where there are several engines. Raise it for hundreds of sessions on a GPU.",
        least=0,
    )
    max_sessions: int = setting(
        32,
        "The most live sessions at the same time. Raise it if the machine has room under real load.",
        above=0,
    )
    max_final_wait_s: float = setting(
        1.0,
        "New live sessions are refused when more than 5 % of the finals wait longer than this for the engine, in "
        "seconds, or would do so with one session more. A value above final_deadline_s switches this off.",
        above=0,
    )
    max_uploads: int = setting(
        8,
        "The most file transcriptions at the same time. They need max_uploads x max_upload_mb of disk space in the "
        "temporary folder. Of several keys, one has no more than are free.",
        above=0,
    )
    max_upload_mb: int = setting(512, "Size limit of a file for transcription, in megabytes.", above=0)
    trusted_proxies: str = setting(
        "127.0.0.1,::1",
        "Addresses and networks of reverse proxies, separated by commas. The server believes what they say about the "
        "client's address and about https. FORWARDED_ALLOW_IPS is read as well.",
    )
    allowed_hosts: str = setting(
        "",
        "Names by which clients may address the server, separated by commas, beside IP addresses and localhost; * is "
        "any. Empty: any, but at a loopback address without API keys no other.",
    )
    allowed_origins: str = setting(
        "",
        "Origins whose pages may use the server, such as https://app.example.org, separated by commas, beside its own; "
        "* is any. Empty: with API keys any page may open WebSockets, without keys no other.",
    )
    max_room_readers: int = setting(
        1000,
        "The most readers of all rooms at the same time, of which an address may have as many as are left, and a room "
        "four times as many. 0: there are no rooms.",
        least=0,
    )
    room_keep_s: float = setting(
        3600.0, "The text of a room that has ended can be read for this many seconds.", above=0
    )
    interim_interval_ms: int = setting(
        350,
        "The least audio between two interims of an utterance, in milliseconds; more if the engine answers slowly. "
        "Raise it for fewer interims and less work.",
        least=MIN_INTERIM_INTERVAL_MS,
    )
    beam_size: int = setting(
        0,
        "Beams of final text and of files, where a client names no number; 1 to 10, and no more than slots. More "
        "beams make fewer mistakes and more work. 0 chooses: 5 for files, and on a CPU for live finals, too, while "
        "interims take at most 0.5 s. Interims are always greedy, which is 1.",
        least=0,
        most=MAX_BEAM_SIZE,
    )
    stability: str = setting(
        "agreement",
        "What makes text of an interim stable. agreement: the next interim has it, too. attention: the model's "
        "attention for it is well before the end of the audio.",
        POLICIES,
    )
    detector: str = setting(
        "webrtc",
        "What tells speech from other sounds. webrtc: a statistical model. silero: a small neural network, which takes "
        "far less noise for speech, misses more soft speech, and needs the extra silero.",
        DETECTORS,
    )
    speech_threshold: float = setting(
        0.5,
        "How sure the detector must be of speech, above 0 and below 1, where clients say nothing else: more takes less "
        "noise for speech, and more soft speech for noise. The detector webrtc knows four steps.",
        above=0,
        below=1,
    )
    turn_model: str = setting(
        "",
        "ONNX file of a model that tells from the audio before a pause whether the speaker has finished, beside the "
        "text. Used in mode adaptive and for eager ends; needs the extra turn-model. Empty: the text alone tells.",
    )
    speaker_model: str = setting(
        "",
        "ONNX file of a network that tells voices apart, or owner/name of a repository on the hub that has one; needs "
        "the extra turn-model. It has one input, (batch, frames, 80) features or (batch, samples) of audio.",
    )
    speaker_joins: float = setting(
        0.45,
        "With speaker_model: two voices are one speaker if the mean cosine of their embeddings is at least this; a "
        "speaker is a known one from 0.1 more on.",
        above=0,
        below=1,
    )
    max_ahead_s: float = setting(
        60.0,
        "How far a client's audio may be ahead of the clock, in seconds. A client further ahead is disconnected.",
        above=0,
    )
    idle_timeout_s: float = setting(
        60.0, "A live session whose client sends nothing for this many seconds is closed.", above=0
    )
    final_deadline_s: float = setting(
        30.0,
        "A live session ends if the engine needs longer than this for a final text, in seconds, so that its client can "
        "continue on another server. With gateways, raise it if your model takes longer to load after a crash.",
        above=0,
    )
    webhook_url: str = setting("", "Address to which the events of calls are posted. Empty: nowhere.")
    webhook_secret: str = setting("", "Secret that signs the posts to webhook_url.")
    redact: str = setting(
        "",
        f"What no text contains, whatever clients ask for: some of {', '.join(KINDS)}, separated by commas. It is "
        "replaced by its kind before the text leaves.",
    )
    translate_url: str = setting(
        "",
        "Address of an API like OpenAI's, such as https://host/v1, whose chat endpoint translates final text. Empty: "
        "nothing but Whisper translates, to English.",
    )
    translate_model: str = setting("", "The name of the model that translates, as that API knows it.")
    translate_languages: str = setting(
        "", "Codes of the languages that this model translates to, such as de,fr,uk, separated by commas."
    )
    translate_key: str = setting("", "Key for that API. Empty: none is sent.")
    drain_timeout_s: float = setting(
        20.0, "How long a stopping server waits for sessions to receive their final text, in seconds.", above=0
    )
    log_level: str = setting("info", "The least severe messages in the log.", LOG_LEVELS)
    log_format: str = setting("text", "Lines for people, or one JSON object a line for programs.", LOG_FORMATS)
    url_hosts: str = setting(
        "",
        "Hosts from which recordings are fetched when a client names their address, separated by commas; "
        "*.example.org for all names below one, * for all. Empty: none.",
    )
    private_networks: str = setting(
        "",
        "Networks such as 10.1.0.0/16, separated by commas, that addresses of clients may lead to although they are "
        "private, also without encryption (http://). Empty: none.",
    )

    # No settings, as no operator had a reason for another value. Tests make them smaller.
    min_upload_kb_per_s: float = 2.0
    """An upload that is slower, in kilobytes per second, is refused: a telephone network carries more. Pauses up to
    `idle_timeout_s` in all are not counted.
    """
    max_strangers: int = 2048
    """Connections that are not admitted yet: twice as many as one address may have, and few enough to cost little."""
    max_strangers_per_address: int = 1024
    """The same limit for one address, of IPv6 for one /64 network: a large office behind one address has fewer."""
    head_timeout_s: float = 10.0
    """The time for the head of a request, or for a TLS handshake: some retransmissions of a bad network."""
    stranger_timeout_s: float = 30.0
    """The time until a client is admitted or answered: what it waits for by itself is far shorter."""
    room_gone_s: float = 300.0
    """A room ends if its speaker has been gone for this time: a machine restarts meanwhile, and readers still wait."""
    room_history_chars: int = 100_000
    """The text that a room keeps for readers who come late: two hours of speech."""
    max_message_kb: int = 1024
    """The size of a WebSocket message, in KiB: half a minute of audio at 16 kHz, which nobody sends at once."""
    send_timeout_s: float = 10.0
    """A client that does not read for this time is gone."""
    translate_timeout_s: float = 15.0
    """A translation that takes longer is dropped: the text that it belongs to has been read by then."""
    translate_requests: int = 16
    """Requests for translations at a time, of each gateway. At half a second each these are thirty texts a second, as
    many as 200 speakers say.
    """
    url_types: tuple[str, ...] = (
        "audio/",
        "video/",
        "application/octet-stream",
        "binary/octet-stream",
        "application/ogg",
        "application/mp4",
    )
    """Content types of recordings that are fetched, `audio/` for all that begin so: those, and what stores of files say
    of any file.
    """
    url_timeout_s: float = 300.0
    """The time for one recording that is fetched: 512 MB at 2 MB a second."""

    plugins: tuple[PluginSettings, ...] = ()
    """The settings of plug-ins. They are no setting by themselves."""
    keys_read: tuple[str, tuple[ApiKey, ...]] = field(default=("", ()), repr=False)
    """`keys_file`, and its keys as they were when these settings were made. Copies of the settings keep them, also in
    other processes, so that a file that is gone meanwhile stops no gateway that starts again. No setting by itself.
    """

    def __post_init__(self) -> None:
        check_values(self)
        if self.keys_file != self.keys_read[0]:
            keys = read_api_keys(Path(self.keys_file)) if self.keys_file else ()
            object.__setattr__(self, "keys_read", (self.keys_file, keys))
        if self.slots and self.beam_size > self.slots:
            raise SettingsError(f"beam_size: expected at most slots, which is {self.slots}, got {self.beam_size}")
        _check_names(self.served_names)
        self._check_engines()
        self._check_detector()
        self._check_turn_model()
        _check_speaker_model(self)
        self._check_pair("tls_cert", "tls_key", "a file")
        self._check_pair("webhook_url", "webhook_secret", "text")
        if self.webhook_url:
            _require(is_http_url(self.webhook_url), "webhook_url", "an http or https address", self.webhook_url)
        for name in listed(self.redact.lower()):
            _require(name in KINDS, "redact", f"some of {', '.join(KINDS)}", name)
        self._check_translation()
        self.proxy_networks  # noqa: B018  # reads them
        self._check_origins()
        self._check_access()
        self._check_redis()
        self.networks_of_clients  # noqa: B018  # reads them, too
        check_hosts("url_hosts", self.url_hosts)

    def of(self, kind: type[_OfPlugin]) -> _OfPlugin:
        """The settings of a plug-in, by their class. Where they were not given, they are its defaults."""
        return next((each for each in self.plugins if isinstance(each, kind)), None) or kind()

    def _check_engines(self) -> None:
        is_valid = self.engines == AUTO or (self.engines.isdecimal() and int(self.engines) >= 1)
        _require(is_valid, "engines", f"{AUTO}, or 1 or more", self.engines)
        _require(bool(self.models), "model", "a name or a folder", self.model)
        if len(self.models) > 1 and (self.gateways or self.engines != "1"):
            setting = "gateways" if self.gateways else "engines"
            raise SettingsError(
                f"model: expected one with {setting}, as only a server of one process loads several, got {self.model}"
            )

    def _check_detector(self) -> None:
        if self.detector == "silero":
            from tutti_server.app.voices import silero

            if not silero.is_installed():
                install = "pip install 'tutti-asr[silero]'"
                raise SettingsError(f"detector: silero needs {' and '.join(silero.DISTRIBUTIONS)}: {install}")

    def _check_turn_model(self) -> None:
        if not self.turn_model:
            return
        from tutti_server.app.voices import turn_model

        if not turn_model.is_installed():
            raise SettingsError(f"turn_model: needs {turn_model.PACKAGE}: pip install 'tutti-asr[turn-model]'")
        _require(is_file(self.turn_model), "turn_model", "an ONNX file", self.turn_model)

    def _check_pair(self, first: str, second: str, expected: str) -> None:
        for given, missing in ((first, second), (second, first)):
            if getattr(self, given) and not getattr(self, missing):
                raise SettingsError(f"{missing}: expected {expected}, as {given} is set, got nothing")

    def _check_translation(self) -> None:
        needed = {"url": self.translate_url, "model": self.translate_model, "languages": self.translate_languages}
        if not any((*needed.values(), self.translate_key)):
            return
        for name, value in needed.items():
            if not value:
                raise SettingsError(f"translate_{name}: expected a value, as other settings translate_… are set")
        _require(is_http_url(self.translate_url), "translate_url", "an http or https address", self.translate_url)
        if not is_sent(self.translate_key):
            raise SettingsError("translate_key: expected one line of ASCII characters, got others")
        for code in self.translation_languages:
            _require(code in NAMES, "translate_languages", "language codes such as de,fr", code)

    @property
    def translation_languages(self) -> tuple[str, ...]:
        """The codes in `translate_languages`, each once."""
        return tuple(dict.fromkeys(listed(self.translate_languages.lower())))

    @property
    def redacted_kinds(self) -> tuple[Kind, ...]:
        """The kinds in `redact`."""
        return tuple(kind for kind in KINDS if kind in listed(self.redact.lower()))

    def _check_origins(self) -> None:
        for name in self.origins - {ANY, "null"}:
            expected = "addresses such as https://app.example.org, without a path"
            _require(_is_origin(name), "allowed_origins", expected, name)
        for name in self.host_names - {ANY}:
            _require(not set(name) & set("/:*"), "allowed_hosts", "whole names, without scheme and port", name)

    def _check_access(self) -> None:
        """A service that other machines can reach needs keys, or an operator who allows everybody."""
        if self.api_keys and not listed(self.api_keys):
            raise SettingsError("api_keys: expected keys separated by commas, got nothing but separators")
        if not all(map(is_sent, self.unnamed_keys)):
            raise SettingsError("api_keys: expected printable ASCII characters, got others")
        if self.metrics_need_key and not self.needs_key:
            expected = "a key with the scope metrics, as keys_file may have"
            raise SettingsError(f"metrics_need_key: expected {expected}, got no keys")
        if not (self.needs_key or self.allow_anyone or self.is_loopback):
            raise SettingsError(
                f"host: other machines can reach {self.host}, and no API keys are set. Set TUTTI_API_KEYS (or "
                "--api-keys), or add --allow-anyone to serve everybody"
            )

    def _check_redis(self) -> None:
        if self.redis_url:
            _check_redis_url(self.redis_url)
        self.check_key_limits(self.gateways, self.named_keys)

    @property
    def networks_of_clients(self) -> tuple[Network, ...]:
        """The private networks that addresses of clients may lead to.

        Raises:
            SettingsError: one of them is no network.
        """
        return networks_in("private_networks", self.private_networks, "networks such as 10.1.0.0/16")

    @property
    def setting_of_keys(self) -> str:
        """The setting by which a plug-in brings API keys; empty if none does."""
        return next(filter(None, (each.setting_of_keys for each in self.plugins)), "")

    @property
    def needs_key(self) -> bool:
        """Whether clients need an API key, of these settings or of a plug-in."""
        return bool(self.unnamed_keys or self.named_keys or self.setting_of_keys)

    @property
    def metrics_have_no_reader(self) -> bool:
        """Whether /metrics asks for a key although no client can have one with the scope metrics."""
        has_reader = bool(self.setting_of_keys) or any("metrics" in each.scopes for each in self.named_keys)
        return self.metrics_need_key and not has_reader

    def check_key_limits(self, n_gateways: int, named_keys: Sequence[ApiKey]) -> None:
        """Check that this number of gateways can count together what keys have limits for.

        Raises:
            SettingsError: they cannot.
        """
        if n_gateways > 1 and not self.redis_url and any(each.has_limits for each in named_keys):
            raise SettingsError("keys_file: expected redis_url with it, as several gateways count the limits of keys")
        if n_gateways > 1 and not self.redis_url and (name := self.setting_of_keys):
            # Any key may be given a limit at any time.
            raise SettingsError(f"{name}: expected redis_url with it, as several gateways count limits of keys")

    @property
    def models(self) -> tuple[str, ...]:
        """The models, the first one first. A folder whose name has commas is one."""
        try:
            is_folder = Path(self.model).expanduser().is_dir()
        except (OSError, RuntimeError):
            # The text is too long to be one name, or the engine says what is wrong with it.
            is_folder = False
        return (self.model,) if is_folder else tuple(dict.fromkeys(listed(self.model)))

    @property
    def served_names(self) -> tuple[str, ...]:
        """The names that clients use for the model, the shown one first; empty for the name of `model`."""
        return listed(self.served_model_name)

    @property
    def unnamed_keys(self) -> frozenset[str]:
        """The API keys of `api_keys`."""
        return frozenset(listed(self.api_keys))

    @property
    def named_keys(self) -> tuple[ApiKey, ...]:
        """The API keys of `keys_file` as it was read at the start. A service follows its changes: `FileKeys`."""
        return self.keys_read[1]

    @property
    def proxy_networks(self) -> tuple[Network, ...]:
        """The networks of the trusted proxies."""
        return networks_in("trusted_proxies", self.trusted_proxies)

    @property
    def host_names(self) -> frozenset[str]:
        """The names in `allowed_hosts`, in lower case."""
        return frozenset(listed(self.allowed_hosts.lower()))

    @property
    def origins(self) -> frozenset[str]:
        """The origins in `allowed_origins`, in lower case."""
        return frozenset(listed(self.allowed_origins.lower()))

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)

    @property
    def is_encrypted(self) -> bool:
        """Whether the server uses TLS."""
        return bool(self.tls_cert)

    @property
    def limits(self) -> Limits:
        """The limits of a live session, which clients are sent."""
        return Limits(
            max_message_bytes=self.max_message_kb * 1024,
            max_ahead_s=self.max_ahead_s,
            idle_timeout_s=self.idle_timeout_s,
        )

    @property
    def session_config(self) -> "SessionConfig":
        """The operator's part of how sessions behave. Loads the models for speech and turns, if there are any.

        Raises:
            SettingsError: the file `turn_model` is no such model.
        """
        # Imported here because it brings NumPy and the speech detector, which `--help` and `--version` do not need.
        from tutti_server.app.session.core.options import SessionConfig
        from tutti_server.app.session.speech.endpointing import WebRtcDetector

        config = SessionConfig(
            limits=self.limits,
            interim_interval_ms=self.interim_interval_ms,
            speculates=True,
            beam_size=self.beam_size or None,
            redact=self.redacted_kinds,
            make_policy=POLICIES[self.stability],
            make_detector=partial(WebRtcDetector, self.speech_threshold),
        )
        if self.detector == "silero":
            from tutti_server.app.voices.detection_batcher import DetectionBatcher
            from tutti_server.app.voices.silero import SileroDetector, SileroModel

            model = SileroModel()
            make_detector = partial(SileroDetector, model, self.speech_threshold)
            config = replace(config, make_detector=make_detector, detect_ahead=DetectionBatcher(model).detect)
        if self.turn_model:
            from tutti_server.app.voices.turn_batcher import TurnBatcher
            from tutti_server.app.voices.turn_model import AudioTurnModel

            config = replace(config, score_turn=TurnBatcher(AudioTurnModel(Path(self.turn_model)).score).score)
        return config


def _check_speaker_model(settings: Settings) -> None:
    default = next(each.default for each in own_settings() if each.name == "speaker_joins")
    if not settings.speaker_model and settings.speaker_joins != default:
        raise SettingsError("speaker_joins: expected speaker_model with it, as the network of tutti has its own")
    if not settings.speaker_model:
        return
    from tutti_server.app.voices import onnx_network

    if not onnx_network.is_installed():
        raise SettingsError(f"speaker_model: needs {onnx_network.PACKAGE}: pip install 'tutti-asr[turn-model]'")
    # Without this ending it may be a name on the hub, whose file is fetched before the server starts.
    is_there = is_file(settings.speaker_model) or not settings.speaker_model.endswith(".onnx")
    _require(is_there, "speaker_model", "an ONNX file", settings.speaker_model)


def is_file(name: str) -> bool:
    """Whether there is such a file, which this user may look for."""
    try:
        return Path(name).is_file()
    except OSError:
        return False


def own_settings() -> tuple[Field[Any], ...]:
    """The settings of the service, without those of plug-ins."""
    return tuple(each for each in fields(Settings) if "help" in each.metadata)


def _require(holds: bool, name: str, expected: str, got: object) -> None:
    if not holds:
        raise SettingsError(f"{name}: expected {expected}, got {got!r}")


def _check_names(names: Sequence[str]) -> None:
    """Refuse names of a model that would break a header or a line of the terminal."""
    for name in names:
        is_plain = all(each.isalnum() or each in "._-/:@+" for each in name) and len(name) <= MAX_NAME_CHARS
        expected = f"names of at most {MAX_NAME_CHARS} letters, digits and . _ - / : @ +"
        _require(is_plain, "served_model_name", expected, name)


def listed(text: str) -> tuple[str, ...]:
    """The values of a setting that are separated by commas."""
    return tuple(value.strip() for value in text.split(",") if value.strip())


def networks_in(name: str, networks: str, expected: str = "addresses and networks") -> tuple[Network, ...]:
    """The networks of a setting.

    Raises:
        SettingsError: one of them is none.
    """
    try:
        return tuple(map(ipaddress.ip_network, listed(networks)))
    except ValueError as error:
        raise SettingsError(f"{name}: expected {expected}, got {error}") from error


def check_hosts(name: str, hosts: str) -> None:
    """Check the hosts of a setting whose addresses clients may name.

    Raises:
        SettingsError: one of them is no name, and no pattern of names.
    """
    for host in listed(hosts.lower()):
        if not host.isascii() or set(host) & set("/: @") or "*" in host.removeprefix("*") or host.endswith("."):
            raise SettingsError(f"{name}: expected names such as example.org or *.example.org, got {host!r}")
        if host.startswith("*") and host != "*" and not host.startswith("*."):
            raise SettingsError(f"{name}: expected *.example.org for all names below one, got {host!r}")


def is_http_url(url: str) -> bool:
    """Whether this is an address of HTTP that can be requested."""
    try:
        parts = urlsplit(url)
        # The line break at the end of a file with the address is left out by `urlsplit`, and refused by clients.
        return url.isprintable() and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _check_redis_url(url: str) -> None:
    """Check what can be known of an address without dialling it. Raises `SettingsError`."""
    expected = "an address such as redis://host:6379/0, rediss://… or unix:///path"
    try:
        parts = urlsplit(url)
        has_place = bool(parts.path if parts.scheme == "unix" else parts.hostname and parts.port != 0)
        database = parts.path.strip("/") if parts.scheme != "unix" else ""
    except ValueError:
        has_place, database = False, ""
    if not has_place or parts.scheme not in ("redis", "rediss", "unix") or not (database or "0").isdecimal():
        # It may hold a password, so it is not shown.
        raise SettingsError(f"redis_url: expected {expected}, got something else")
    if find_spec("redis") is None:
        raise SettingsError("redis_url: needs redis: pip install 'tutti-asr[redis]'")


def _is_origin(text: str) -> bool:
    try:
        parts = urlsplit(text)
        is_whole = f"{parts.scheme}://{parts.netloc}" == text and parts.username is None and "*" not in text
        return is_whole and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
