"""Servers that take jobs."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.app.conftest import Running, Serve
from tests.fakes import FakeTranscriber

ServeJobs = Callable[..., Any]


@pytest.fixture
def serve_jobs(serve: Serve, tmp_path: Path) -> ServeJobs:
    async def start(transcriber: FakeTranscriber | None = None, **values: Any) -> Running:
        return await serve(transcriber, jobs=True, data_folder=str(tmp_path / "state"), **values)

    return start


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=30) as client:
        yield client
