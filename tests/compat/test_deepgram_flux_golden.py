"""Flux messages, as they were recorded. `python -m tests.compat.test_deepgram_flux_golden` records anew."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from deepgram.listen.v2 import types
from pydantic import BaseModel

from tests.compat.asyncapi import flux_problems
from tests.compat.conformance import approximated, supported
from tests.compat.exchange import cases, golden, in_pieces, record, replay
from tests.compat.sentences import SENTENCES
from tests.fakes import MODEL
from tutti_server.app.dialects.deepgram.flux_options import parse
from tutti_server.app.dialects.deepgram.flux_wire import Flux

FLUX = "deepgram-flux"
REQUEST_ID = "8f0e3d0e-1b1a-4d0c-9c59-3f1f1c0f5a11"
RAW = "encoding=linear32&sample_rate=16000&"
QUERIES = {
    "configure": "model=flux-general-multi&keyterm=tutti",
    "eager": "model=flux-general-en&eager_eot_threshold=0.3&eot_threshold=0.9",
    "languages": "model=flux-general-multi&language_hint=en&language_hint=de",
}
SHOWS = {
    "turns": [
        supported(FLUX, "Connected, TurnInfo: StartOfTurn, EndOfTurn"),
        approximated(FLUX, "TurnInfo: Update", how="`end_of_turn_confidence` is 0 while the speaker goes on"),
        approximated(
            FLUX, "TurnInfo: words", how="without `start` and `end` where a transcript ends in the middle of a word"
        ),
        supported(FLUX, "CloseStream"),
    ],
    "eager": [supported(FLUX, "TurnInfo: EagerEndOfTurn, TurnResumed")],
    "force_end_turn": [supported(FLUX, "ForceEndTurn")],
    "configure": [approximated(FLUX, "Configure", how="without `numerals` and `profanity_filter`")],
    "languages": [supported(FLUX, "TurnInfo: languages, languages_hinted")],
}
"""What of the options an exchange shows."""
SDK: dict[str, type[BaseModel]] = {
    "Connected": types.ListenV2Connected,
    "TurnInfo": types.ListenV2TurnInfo,
    "ConfigureSuccess": types.ListenV2ConfigureSuccess,
    "ConfigureFailure": types.ListenV2ConfigureFailure,
    "Warning": types.ListenV2Warning,
    "Error": types.ListenV2FatalError,
}
"""The SDK's class of each message."""


def dialect(name: str) -> Flux:
    query = RAW + QUERIES.get(name, "model=flux-general-en")
    return Flux(parse(parse_qsl(query), MODEL.languages), REQUEST_ID)


def answers(path: Path) -> list[dict[str, Any]]:
    return [step["answer"] for step in json.loads(path.read_text()) if "answer" in step]


@pytest.mark.parametrize("path", cases(FLUX, SHOWS))
def test_messages_are_answered_as_recorded(path: Path) -> None:
    replay(path, dialect(path.stem), in_pieces, server=SENTENCES)


@pytest.mark.parametrize("path", cases(FLUX, {}))
def test_messages_are_those_that_deepgram_publishes(path: Path) -> None:
    """By the schema, by the SDK's classes, and counted from 0."""
    messages = answers(path)
    assert [problem for message in messages for problem in flux_problems(message)] == []
    for message in messages:
        assert SDK[message["type"]].model_validate(message).model_extra == {}
    assert [message["sequence_id"] for message in messages] == list(range(len(messages)))


if __name__ == "__main__":
    for each in golden(FLUX):
        record(each, dialect(each.stem), in_pieces, server=SENTENCES)
