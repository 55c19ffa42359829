"""Settings: an invalid value stops the start with a clear error."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from tests.onnx_files import Operator, save_model
from tests.settings_table import PAGE, page_with, table
from tutti_server.app.cli.commands import cli
from tutti_server.app.errors import SettingsError
from tutti_server.app.server.plugins import OURS, check_environment, installed_plugins
from tutti_server.app.service.settings import REMOVED, Settings, own_settings
from tutti_server.app.session.speech.endpointing import WebRtcDetector
from tutti_server.app.session.speech.turn_taking import AUDIO_SAMPLES
from tutti_server.app.voices.silero import SileroDetector, is_installed


def test_defaults_serve_loopback_without_keys() -> None:
    assert Settings().unnamed_keys == frozenset()
    assert Settings(api_keys=" a, b ,").unnamed_keys == {"a", "b"}


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org"])
def test_a_public_address_needs_keys(host: str) -> None:
    """An operator cannot open the service to everybody by accident."""
    with pytest.raises(SettingsError, match="API keys"):
        Settings(host=host)
    Settings(host=host, api_keys="k")
    Settings(host=host, allow_anyone=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_a_loopback_address_needs_no_keys(host: str) -> None:
    Settings(host=host)


WEBHOOK = {"webhook_secret": "s"}
TRANSLATES = {"translate_url": "http://127.0.0.1:9/v1", "translate_model": "m", "translate_languages": "de, fr,de"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        *(
            ({name: value}, f"{name}: expected .* got")
            for name, value in (
                ("port", 70000),
                ("max_sessions", 0),
                ("interim_interval_ms", 10),
                ("threads", -1),
                ("threads", 100_000),
                ("idle_timeout_s", 0.0),
                ("final_deadline_s", 0.0),
                ("max_ahead_s", float("inf")),
                ("log_level", "loud"),
                ("log_format", "xml"),
                ("detector", "ears"),
                ("speech_threshold", 1.0),
                ("served_model_name", "calls,a b"),
                ("speaker_joins", 1.0),
                ("keys_file", "/nowhere"),
                # A value of a list that can be compared with nothing would never match, without a word.
                ("trusted_proxies", "proxy.example.org"),
                ("allowed_origins", "app.example.org"),
                ("allowed_origins", "https://app.example.org/page"),
                ("allowed_origins", "https://*.example.org"),
                ("allowed_origins", "https://app.example.org:port"),
                ("allowed_hosts", "https://app.example.org"),
                ("allowed_hosts", "app.example.org:8000"),
                ("allowed_hosts", "*.example.org"),
                ("url_hosts", "example.org."),
            )
        ),
        # A value without a key must not open the service to everybody.
        *(({"host": "0.0.0.0", "api_keys": keys}, "api_keys: expected") for keys in (",", " ", "\n")),
        ({"metrics_need_key": True}, "metrics_need_key: expected a key with the scope metrics, as keys_file"),
        ({"redact": "card,names"}, "redact: expected some of card, .*, got 'names'"),
        ({"speaker_joins": 0.3}, "speaker_joins: expected speaker_model with it"),
        ({"tls_cert": "some.pem"}, "tls_key: expected a file, as tls_cert is set"),
        ({"tls_key": "some.pem"}, "tls_cert: expected a file, as tls_key is set"),
        # Without a secret the receiver could not verify the posts.
        ({"webhook_url": "https://example.org/hook"}, "webhook_secret: expected text, as webhook_url is set"),
        (WEBHOOK, "webhook_url: expected text, as webhook_secret is set"),
        (WEBHOOK | {"webhook_url": "example.org"}, "webhook_url: expected an http or https address"),
        (WEBHOOK | {"webhook_url": "http://["}, "webhook_url: expected an http or https address"),
        (WEBHOOK | {"webhook_url": "http://a/\n"}, r"webhook_url: .* got 'http://a/\\n'"),
        (WEBHOOK | {"webhook_url": "ftp://example.org/"}, "webhook_url: expected an http or https"),
        (WEBHOOK | {"webhook_url": "http://example.org:80a/"}, "webhook_url: expected an http or https"),
        # A server that cannot translate as its operator means does not start.
        (TRANSLATES | {"translate_model": ""}, "translate_model: expected a value"),
        ({"translate_key": "k"}, "translate_url: expected a value"),
        (TRANSLATES | {"translate_url": "host/v1"}, "translate_url: expected an http or https address"),
        (TRANSLATES | {"translate_languages": "de,german"}, "translate_languages: expected language codes.*'german'"),
        (TRANSLATES | {"translate_key": "secret\n"}, "translate_key: expected one line"),
        (TRANSLATES | {"translate_key": "“secret”"}, "translate_key: expected one line of ASCII"),
    ],
    ids=str,
)
def test_values_that_cannot_be_used_stop_the_start(values: dict[str, Any], message: str) -> None:
    """The error names the setting, and what was expected."""
    with pytest.raises(SettingsError, match=f"^{message}"):
        Settings(**values)


def test_values_that_belong_together_are_accepted() -> None:
    """Languages of translations count once."""
    Settings(webhook_url="http://127.0.0.1:9/hook", webhook_secret="s")
    assert Settings(**TRANSLATES).translation_languages == ("de", "fr")  # type: ignore[arg-type]


def test_a_list_of_models_may_be_longer_than_a_name_of_a_file() -> None:
    names = tuple(f"owner/{'a' * 60}{number}" for number in range(90))
    assert Settings(model=",".join(names)).models == names


def test_an_unknown_variable_stops_the_start() -> None:
    check_environment({"TUTTI_PORT": "1", "TUTTI_API_KEY": "of the client", "PATH": ""})
    with pytest.raises(SettingsError, match=r"environment: TUTTI_PROT \(did you mean TUTTI_PORT\?\), TUTTI_SPLENDID$"):
        check_environment({"TUTTI_PROT": "1", "TUTTI_SPLENDID": "1"})


def test_a_setting_that_was_removed_says_what_holds() -> None:
    """As a variable, and as a flag of each command that had it."""
    with pytest.raises(SettingsError, match=r"TUTTI_SEND_TIMEOUT_S \(removed: it is always 10 s\)"):
        check_environment({"TUTTI_SEND_TIMEOUT_S": "5"})
    for command in (["serve"], ["transcribe", "talk.wav"], ["demo"], ["warm"]):
        refused = CliRunner().invoke(cli, [*command, "--max-wait-ms", "1"])
        assert "No such option '--max-wait-ms' (removed: it is always 5 ms)" in refused.output
    assert not REMOVED.keys() & {each.name for each in own_settings()}


def test_the_operators_page_lists_the_settings_as_help_explains_them() -> None:
    """`python -m tests.settings_table` writes the table anew."""
    if len(OURS) > len(installed_plugins()):
        pytest.skip("a plug-in of this repository is not installed")
    page = PAGE.read_text()
    assert page_with(table(), page) == page


def test_silero_without_its_packages_stops_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tutti_server.app.voices.silero.PACKAGES", ("no_such_package",))
    with pytest.raises(
        SettingsError, match=r"silero needs onnxruntime and silero-vad: pip install 'tutti-asr\[silero\]'"
    ):
        Settings(detector="silero")


@pytest.mark.skipif(not is_installed(), reason="needs the packages of the extra silero")
def test_the_detector_is_the_one_of_the_setting() -> None:
    """Silero's detectors are prepared in one batch; the WebRTC detector needs none."""
    webrtc, silero = Settings().session_config, Settings(detector="silero", speech_threshold=0.3).session_config
    assert isinstance(webrtc.make_detector(), WebRtcDetector) and webrtc.detect_ahead is None
    assert isinstance(silero.make_detector(), SileroDetector) and silero.detect_ahead


async def test_a_turn_model_is_loaded_for_all_sessions(tmp_path: Path) -> None:
    """The one of the test returns the loudest sample. Without the setting, no session asks."""
    pytest.importorskip("onnxruntime")
    operators: list[Operator] = [("ReduceMax", {"axes": [1], "keepdims": 0})]
    path = save_model(tmp_path / "turns.onnx", operators, AUDIO_SAMPLES)
    score = Settings(turn_model=str(path)).session_config.score_turn
    assert score and Settings().session_config.score_turn is None
    assert await score(np.full(100, 0.25, np.float32)) == 0.25


@pytest.mark.parametrize("name", ["turn_model", "speaker_model"])
def test_a_model_that_cannot_be_looked_for_stops_the_start(name: str) -> None:
    """As one in a folder that this user may not enter; here the system takes no such name."""
    pytest.importorskip("onnxruntime")
    values: dict[str, Any] = {name: "x" * 300 + ".onnx"}
    with pytest.raises(SettingsError, match=f"{name}: expected an ONNX file, got 'xxx"):
        Settings(**values)


def test_a_wrong_turn_model_stops_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With what is missing."""
    pytest.importorskip("onnxruntime")
    path = tmp_path / "turns.onnx"
    with pytest.raises(SettingsError, match=r"turn_model: expected an ONNX file, got '.*turns\.onnx'"):
        Settings(turn_model=str(path))
    path.write_text("no model")
    with pytest.raises(SettingsError, match=r"turn_model: .*turns\.onnx: expected a model with one input"):
        _ = Settings(turn_model=str(path)).session_config
    monkeypatch.setattr("tutti_server.app.voices.turn_model.PACKAGE", "no_such_package")
    with pytest.raises(SettingsError, match=r"needs no_such_package: pip install 'tutti-asr\[turn-model\]'"):
        Settings(turn_model=str(path))


def test_kinds_to_redact_are_listed_with_commas() -> None:
    assert Settings(redact="email, Card").session_config.redact == ("card", "email")
    assert Settings().session_config.redact == ()
