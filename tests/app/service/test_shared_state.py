"""Several gateways are one service: their limits and client secrets are shared."""

import time
from contextlib import ExitStack, suppress
from typing import Any

import numpy as np
import pytest

from tests.fakes import FakeTranscriber
from tutti_server.app.errors import KeyLimitExceeded, LimitExceeded
from tutti_server.app.media.decoder_workers import Decoders
from tutti_server.app.service.service import Service
from tutti_server.app.service.settings import Settings
from tutti_server.app.service.shared_state import N_COUNTS, AdmissionCounter, SharedState
from tutti_server.app.session.core.options import SessionConfig


def gateways(n: int, **values: Any) -> list[Service]:
    """The gateways of one service."""
    counts, key = np.zeros((n, N_COUNTS), np.int64), "k" * 64
    settings = Settings(**values)
    return [
        Service(
            settings,
            FakeTranscriber(),
            SessionConfig(),
            SharedState(key=key, started=1, counter=AdmissionCounter(counts, gateway), n_gateways=n),
            Decoders(),
        )
        for gateway in range(n)
    ]


def test_an_uploader_has_no_more_uploads_than_are_free() -> None:
    """Alone half of them. Each further one has a part of the rest, and an upload that has ended no longer counts."""
    (one,) = gateways(1, max_uploads=8)
    n_uploads = {}
    with ExitStack() as uploads:
        for uploader in ("a", "b", "c", "d"):
            n_uploads[uploader] = 0
            with suppress(LimitExceeded):
                while True:
                    uploads.enter_context(one.admission.upload(uploader))
                    n_uploads[uploader] += 1
        assert n_uploads == {"a": 4, "b": 2, "c": 1, "d": 1}
        with pytest.raises(LimitExceeded, match="8 of 8 file transcriptions"):
            one.admission.upload("e").__enter__()
    assert one.metrics.registry.get_sample_value("tutti_refused_total", {"reason": "key_limit"}) == 3
    with one.admission.upload("a"):
        pass


def test_an_uploader_does_not_fill_several_gateways() -> None:
    """Each gateway knows its own uploads of a key, and how many more all together may have."""
    one, other = gateways(2, max_uploads=8)
    with ExitStack() as uploads:
        for gateway in (one, other) * 4:
            with suppress(KeyLimitExceeded):
                uploads.enter_context(gateway.admission.upload("a"))
        assert one.shared.counter.total("uploads") == 6
        uploads.enter_context(other.admission.upload("b"))


def test_a_secret_of_one_gateway_opens_sessions_at_another() -> None:
    """Also without API keys: all gateways then sign with a shared key."""
    one, other = gateways(2)
    secret = one.access.sign_client_secret(None, int(time.time()) + 60, {"type": "transcription"})
    read = other.access.client_secret(secret.value)
    assert read and read.session == {"type": "transcription"}
    elsewhere = Service(Settings(), FakeTranscriber(), SessionConfig(), SharedState(), Decoders())
    assert elsewhere.access.client_secret(secret.value) is None
