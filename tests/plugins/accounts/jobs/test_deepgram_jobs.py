"""Jobs of Deepgram's API: what their work makes of errors."""

import errno
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.fakes import FakeTranscriber
from tutti_server.app.dialects.deepgram.jobs_endpoint import job_kind
from tutti_server.app.jobs import JobDelayed, Request
from tutti_server.app.service.models import Models


def job(account: str = "o") -> Any:
    """What these functions read of a job."""
    request = Request(kind="deepgram", options={"query": []})
    return SimpleNamespace(id="id", account=account, request=request, error_code=None, error=None)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
async def test_what_a_machine_lacks_at_present_delays_a_job(number: int) -> None:
    """Another one has it, or the same one later."""

    class Lacking(BytesIO):
        def read(self, n: int | None = -1) -> bytes:
            raise OSError(number, "lacking")

    transcriber = FakeTranscriber()
    service: Any = SimpleNamespace(transcriber=transcriber, models=Models(transcriber), speaker_model=None)
    with pytest.raises(JobDelayed, match="the server has no room for it"):
        await job_kind(service).work(job(), Lacking())


@pytest.mark.parametrize(("name", "sent"), [("M\u00fcller GmbH", "M?ller GmbH"), (" a ", "a")])
def test_the_answer_is_sent_whatever_the_name_of_its_key(name: str, sent: str) -> None:
    """A key of the file may have a name that no header can carry."""
    service: Any = SimpleNamespace()
    message = job_kind(service).callback(job(account=name), None)
    assert httpx.Headers(message.headers)["dg-token"] == sent
