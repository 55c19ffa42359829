"""How large functions, classes and records may grow. The numbers of those that are larger only go down.

`python -m tests.test_sizes [FOLDER ...]` lists what is over a limit.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).parents[1]
FOLDERS = ("app", "engine", "cluster", "clients/python/tutti", "benchmarks", "training")
MAX_ATTRIBUTES = 12
"""Of a class whose instances change; frozen dataclasses are records, and may be as long as what they record."""
MAX_METHODS = 25
MAX_LINES = 50
"""Of a function, its docstring and decorators left out."""
MAX_PARAMETERS = 8
OPTIONS_FROM_OUTSIDE = {"click.command", "cli.command", "triton.jit"}
"""Decorators of functions whose parameters are a command's options or a kernel's tensors, sizes and constants."""
MAX_POSITIONAL_FIELDS = 4
"""Of a dataclass that is not `kw_only`."""

DEBTORS: dict[tuple[str, str], int] = {
    ("attributes", "app/dialects/deepgram/live_wire.py:Deepgram"): 13,
    ("attributes", "app/dialects/openai/realtime_wire.py:OpenAIRealtime"): 14,
    ("attributes", "app/live/connection.py:Connection"): 18,
    ("attributes", "app/media/stream_decoder.py:ContainerDecoder"): 13,
    ("attributes", "app/service/metrics.py:Metrics"): 16,
    ("attributes", "app/service/service.py:Service"): 13,
    ("attributes", "app/session/finals.py:FinalWindow"): 21,
    ("attributes", "app/session/session.py:Session"): 19,
    ("attributes", "clients/python/tutti/session.py:Session"): 16,
    ("attributes", "clients/python/tutti/session.py:SessionOptions"): 18,
    ("attributes", "engine/cuda/graphs.py:CudaGraphForward"): 19,
    ("attributes", "engine/decoding/transcript.py:TokenTranscript"): 14,
    ("attributes", "engine/runner.py:Runner"): 28,
    ("attributes", "engine/scheduling/stats.py:StatsRecorder"): 13,
    ("attributes", "engine/scheduling/worker.py:Request"): 15,
    ("attributes", "engine/scheduling/worker.py:Worker"): 17,
    ("attributes", "training/train.py:Trainer"): 23,
    ("lines", "app/cli/terminal.py:print_transcript"): 62,
    ("lines", "app/dialects/native/wire.py:_wire"): 66,
    ("lines", "app/files/transcription.py:transcribe"): 68,
    ("lines", "app/service/metrics.py:__init__"): 59,
    ("lines", "benchmarks/live/streams.py:main"): 55,
    ("lines", "benchmarks/live_capacity.py:main"): 52,
    ("lines", "engine/cuda/fused_sampling.py:_sample"): 61,
    ("lines", "engine/runner.py:__init__"): 63,
    ("methods", "app/dialects/openai/realtime_wire.py:OpenAIRealtime"): 27,
    ("methods", "app/session/channel.py:Channel"): 26,
    ("methods", "app/session/finals.py:Finals"): 26,
    ("methods", "app/session/session.py:Session"): 40,
    ("methods", "engine/scheduling/worker.py:Worker"): 29,
    ("parameters", "app/files/transcription.py:transcribe"): 17,
    ("parameters", "app/live/connection.py:__init__"): 10,
    ("parameters", "clients/python/tutti/session.py:connect"): 22,
    ("parameters", "engine/cuda/graphs.py:__init__"): 9,
    ("parameters", "engine/runner.py:build_cuda_forward"): 9,
    ("positional fields", "app/dialects/deepgram/live_wire.py:_Channel"): 6,
    ("positional fields", "app/dialects/deepgram/options.py:Options"): 20,
    ("positional fields", "app/dialects/openai/files_wire.py:Options"): 15,
    ("positional fields", "app/dialects/openai/realtime_options.py:Settings"): 8,
    ("positional fields", "app/dialects/openai/realtime_wire.py:_Item"): 9,
    ("positional fields", "app/service/gateway_counts.py:Shared"): 5,
    ("positional fields", "app/service/settings.py:Settings"): 33,
    ("positional fields", "app/session/channel.py:ChannelOptions"): 7,
    ("positional fields", "app/session/channel.py:_OpenWindow"): 8,
    ("positional fields", "app/session/commands.py:Configure"): 6,
    ("positional fields", "app/session/commands.py:Endpointing"): 5,
    ("positional fields", "app/session/commands.py:Start"): 10,
    ("positional fields", "app/session/events.py:Endpoint"): 5,
    ("positional fields", "app/session/events.py:Interim"): 7,
    ("positional fields", "app/session/events.py:Segment"): 11,
    ("positional fields", "app/session/events.py:SpeechStarted"): 5,
    ("positional fields", "app/session/events.py:Utterance"): 11,
    ("positional fields", "app/session/finals.py:FinalWindow"): 21,
    ("positional fields", "app/session/finals.py:PendingUtterance"): 9,
    ("positional fields", "app/session/session.py:SessionConfig"): 8,
    ("positional fields", "app/session/speech_filter.py:SpeechFilter"): 10,
    ("positional fields", "benchmarks/accuracy.py:Score"): 7,
    ("positional fields", "benchmarks/asr.py:DecodeRequest"): 7,
    ("positional fields", "benchmarks/engine_throughput.py:Load"): 9,
    ("positional fields", "benchmarks/files/engines.py:Job"): 6,
    ("positional fields", "benchmarks/files/labelled_clips.py:Clip"): 5,
    ("positional fields", "benchmarks/files/transcribers.py:Setup"): 7,
    ("positional fields", "benchmarks/live/captions.py:WordDelays"): 5,
    ("positional fields", "benchmarks/live/client.py:ClientLog"): 6,
    ("positional fields", "benchmarks/live/latencies.py:Delays"): 7,
    ("positional fields", "benchmarks/live/latencies.py:_Turn"): 6,
    ("positional fields", "benchmarks/live/load_clients.py:Noted"): 11,
    ("positional fields", "benchmarks/peers/file_engines.py:Task"): 6,
    ("positional fields", "benchmarks/peers/live_servers.py:Setting"): 5,
    ("positional fields", "benchmarks/soak.py:Plan"): 6,
    ("positional fields", "benchmarks/soak.py:_Mark"): 8,
    ("positional fields", "clients/python/tutti/captions.py:Caption"): 6,
    ("positional fields", "clients/python/tutti/messages.py:Interim"): 7,
    ("positional fields", "clients/python/tutti/messages.py:Segment"): 10,
    ("positional fields", "clients/python/tutti/messages.py:Start"): 9,
    ("positional fields", "clients/python/tutti/messages.py:Started"): 5,
    ("positional fields", "clients/python/tutti/messages.py:Utterance"): 9,
    ("positional fields", "cluster/local/messages.py:Submit"): 6,
    ("positional fields", "cluster/local/remote_transcriber.py:_Submission"): 10,
    ("positional fields", "cluster/local/roles.py:GatewayRole"): 7,
    ("positional fields", "cluster/local/supervisor.py:Supervisor"): 10,
    ("positional fields", "cluster/local/supervisor.py:SupervisorConfig"): 9,
    ("positional fields", "cluster/local/supervisor.py:_Post"): 5,
    ("positional fields", "engine/api.py:DecodeOptions"): 12,
    ("positional fields", "engine/api.py:DoneEvent"): 12,
    ("positional fields", "engine/api.py:EngineStats"): 16,
    ("positional fields", "engine/api.py:ModelInfo"): 9,
    ("positional fields", "engine/api.py:Sampling"): 6,
    ("positional fields", "engine/api.py:Segment"): 9,
    ("positional fields", "engine/api.py:Window"): 5,
    ("positional fields", "engine/checkpoint/catalog.py:KnownModel"): 5,
    ("positional fields", "engine/checkpoint/checkpoint.py:Checkpoint"): 5,
    ("positional fields", "engine/checkpoint/checkpoint.py:GenerationConfig"): 7,
    ("positional fields", "engine/checkpoint/checkpoint.py:ModelConfig"): 11,
    ("positional fields", "engine/config.py:EngineConfig"): 16,
    ("positional fields", "engine/decoding/logit_rules.py:RuleState"): 5,
    ("positional fields", "engine/decoding/prompt.py:Prompt"): 5,
    ("positional fields", "engine/decoding/transcript.py:TranscriptInfo"): 8,
    ("positional fields", "engine/scheduling/batcher.py:BatchLimits"): 7,
    ("positional fields", "engine/scheduling/batcher.py:Load"): 6,
    ("positional fields", "engine/scheduling/batcher.py:Waiting"): 5,
    ("positional fields", "engine/scheduling/worker.py:Request"): 15,
    ("positional fields", "training/evaluation/bench.py:Bench"): 6,
    ("positional fields", "training/evaluation/card.py:Row"): 7,
    ("positional fields", "training/evaluation/clips.py:Clip"): 7,
    ("positional fields", "training/model/network.py:Sizes"): 6,
    ("positional fields", "training/model/windows.py:Plan"): 10,
    ("positional fields", "training/model/windows.py:_Filled"): 5,
    ("positional fields", "training/speech/bank_index.py:Said"): 5,
}
"""`(what is counted, path:name)` of what is still over a limit, with its number today: to be lowered, never raised."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Size(NamedTuple):
    """One number of one thing."""

    what: str
    name: str
    number: int
    limit: int


def sizes(path: Path, source: str) -> Iterator[Size]:
    """All that is counted of a file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            yield from _class_sizes(node, str(path))
        elif isinstance(node, Function):
            name = f"{path}:{node.name}"
            yield Size("lines", name, _n_lines(node), MAX_LINES)
            if not _decorators(node) & OPTIONS_FROM_OUTSIDE:
                yield Size("parameters", name, _n_parameters(node), MAX_PARAMETERS)


def _class_sizes(node: ast.ClassDef, path: str) -> Iterator[Size]:
    name = f"{path}:{node.name}"
    methods = [each for each in node.body if isinstance(each, Function)]
    yield Size("methods", name, len(methods), MAX_METHODS)
    fields = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    arguments = _dataclass_arguments(node)
    if arguments is not None and not arguments & {"kw_only"}:
        yield Size("positional fields", name, len(fields), MAX_POSITIONAL_FIELDS)
    if arguments is None or not arguments & {"frozen"}:
        yield Size("attributes", name, len(fields | _assigned(methods)), MAX_ATTRIBUTES)


def _dataclass_arguments(node: ast.ClassDef) -> set[str] | None:
    """The arguments of a class's `dataclass` decorator that are true; `None` if it has none."""
    for each in node.decorator_list:
        called = each.func if isinstance(each, ast.Call) else each
        if isinstance(called, ast.Name) and called.id == "dataclass":
            given = each.keywords if isinstance(each, ast.Call) else []
            return {str(one.arg) for one in given if isinstance(one.value, ast.Constant) and one.value.value is True}
    return None


def _assigned(methods: list[Function]) -> set[str]:
    """The names that methods give to `self`."""
    return {
        each.attr
        for method in methods
        for each in ast.walk(method)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }


def _decorators(node: Function) -> set[str]:
    return {ast.unparse(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list}


def _n_lines(node: Function) -> int:
    body = node.body
    if (
        isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        body = body[1:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def _n_parameters(node: Function) -> int:
    arguments = node.args
    given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([each for each in given if each.arg not in ("self", "cls")])


def over_limit(*folders: str) -> dict[tuple[str, str], Size]:
    """What is larger than it may be. Of several functions of a name in a file, the largest."""
    found: dict[tuple[str, str], Size] = {}
    for folder in folders:
        for path in sorted((REPOSITORY / folder).rglob("*.py")):
            if "node_modules" in path.parts:
                continue
            for size in sizes(path.relative_to(REPOSITORY), path.read_text()):
                key = (size.what, size.name)
                if size.number > size.limit and (key not in found or size.number > found[key].number):
                    found[key] = size
    return found


def test_nothing_grows_over_its_limit() -> None:
    """What is over a limit is listed in `DEBTORS`, and no larger than it says there."""
    found = {key: size.number for key, size in over_limit(*FOLDERS).items()}
    assert {key: number for key, number in found.items() if number > DEBTORS.get(key, 0)} == {}
    smaller = {key: number for key, number in DEBTORS.items() if found.get(key, 0) < number}
    assert smaller == {}, "lower or remove these in DEBTORS"


@pytest.mark.parametrize(
    ("source", "what", "number"),
    [
        ("class A:\n    def __init__(self):\n        self.a = self.b = 1\n", "attributes", 2),
        ("@dataclass(slots=True)\nclass A:\n    a: int\n    b: int\n", "positional fields", 2),
        ("def f(self, a, *, b):\n    '''Doc.'''\n    a\n\n    b\n", "lines", 3),
        ("def f(self, a, *, b):\n    pass\n", "parameters", 2),
        ("@triton.jit\ndef f(a, b):\n    pass\n", "lines", 1),
        ("class A:\n    def f(self): ...\n    async def g(self): ...\n", "methods", 2),
    ],
)
def test_what_is_counted(source: str, what: str, number: int) -> None:
    """Each size is what its limit says of it."""
    counted = [size.number for size in sizes(Path("a.py"), source) if size.what == what]
    assert number in counted


if __name__ == "__main__":
    for size in sorted(over_limit(*(sys.argv[1:] or FOLDERS)).values()):
        print(f"{size.what:18} {size.number:4} (limit {size.limit})  {size.name}")
