"""Prepares the tests of kernels."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any

import pytest


@pytest.fixture(scope="session", autouse=True)
def kernels_without_coverage() -> Iterator[None]:
    """Trace no line while Triton's interpreter runs a kernel, as no report counts these. It takes half as long so."""
    if find_spec("triton") is None:
        yield
        return
    from triton.runtime.interpreter import GridExecutor

    traced = GridExecutor.__call__

    def untraced(self: Any, *args: Any, **kwargs: Any) -> Any:
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            return traced(self, *args, **kwargs)
        finally:
            sys.settrace(tracer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GridExecutor, "__call__", untraced)
        yield
