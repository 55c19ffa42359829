"""What the command line prints: the banner of a server, and the list of models."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tutti_server.app.service.live_load import usual_sessions
from tutti_server.app.service.settings import Settings
from tutti_server.app.version import VERSION
from tutti_server.engine import api
from tutti_server.engine.checkpoint.catalog import KNOWN_MODELS

LOOPBACK_OF_ANY = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""An address that can be opened on this machine, for a server that listens on all addresses."""


def console(*, stderr: bool = False, soft_wrap: bool = False) -> Console:
    """A console that prints text as it is, without highlighting or emoji."""
    return Console(highlight=False, emoji=False, stderr=stderr, soft_wrap=soft_wrap)


def banner(settings: Settings, model: api.ModelInfo, stats: api.EngineStats, port: int) -> str:
    """What a server prints when it is ready: its version, its model, what was measured, and its addresses."""
    host = LOOPBACK_OF_ANY.get(settings.host, settings.host)
    host = escape(f"[{host}]" if ":" in host else host)
    slots = f"{stats.n_engines} engines, {model.n_slots} slots" if stats.n_engines > 1 else f"{model.n_slots} slots"
    secure = "s" if settings.is_encrypted else ""
    lines = [
        f"[bold]tutti[/] {VERSION} · model [bold]{escape(model.name)}[/] "
        f"({model.n_parameters / 1e6:.1f} M parameters, {model.dtype} on {model.device}, {slots})",
        f"  capacity   {_capacity(settings, stats)}",
        f"  live       ws{secure}://{host}:{port}/v1/stream",
        f"  files      http{secure}://{host}:{port}/v1/audio/transcriptions",
        f"  metrics    http{secure}://{host}:{port}/metrics",
        f"[bold]Ready for captions: http{secure}://{host}:{port}/[/]",
    ]
    if settings.host in LOOPBACK_OF_ANY:
        lines.append(f"[dim]  The server listens on every address of this machine ({settings.host}).[/]")
    return "\n".join(lines)


def _capacity(settings: Settings, stats: api.EngineStats) -> str:
    """Return for how many usual live sessions the engines have time, and the measured time for a sentence."""
    interval_s = settings.interim_interval_ms / 1000
    n = min(usual_sessions(stats, settings.max_final_wait_s, interval_s), settings.max_sessions)
    sentence_s = stats.utterance_encode_s + stats.window_decode_s
    n_sessions = "1 live session" if n < 2 else f"{int(n)} live sessions"
    return f"about {n_sessions} here: a sentence takes the engine {sentence_s:.2g} s"


def print_models(out: Console) -> None:
    """Print the models that have a name of their own."""
    table = Table(box=None, pad_edge=False)
    for heading in ("model", "parameters", "about"):
        table.add_column(heading, justify="right" if heading == "parameters" else "left")
    for model in KNOWN_MODELS:
        table.add_row(model.name, f"{model.n_parameters_m} M", model.about)
    out.print(table)
    out.print(
        "\nThe owner may be left out, and whisper-: small, distil-large-v3.5; turbo is large-v3-turbo. "
        "A model with a slash is downloaded from the Hugging Face hub once, and kept in ~/.cache/huggingface. "
        "owner/name@revision names a branch, a tag or a commit. Any other Whisper checkpoint in the Hugging Face "
        "layout works as well, from the hub or in a folder.",
        markup=False,
    )
