"""The three tiers of tests, and what belongs to each. CONTRIBUTING.md says what a tier is for and how long it takes.

| tier | run by | what it may use |
|---|---|---|
| `quick` | `make quick` | one process and loopback sockets; no torch, no coverage |
| `default` | `make test`, after `quick` | everything but what `nightly` has |
| `nightly` | `make nightly` | hours, if need be |

A test has the tier of its own marker (`@pytest.mark.nightly`), else that of its module (`pytestmark`), else that of its
file or folder in these lists, else `default`.

What waits for the night, and what protects it by day:

- random models with 80 mels, few positions, mostly those in English alone: the small model; random ones with 128
  mels.
- beams with prompts and translations, of other models, on a device: those of a multilingual one on a CPU.
- a whole pass with CUDA graphs: one with fused kernels.
- windows among others, small model: a random model; two windows of the small one in 8 bits.
- the small model without times; a short training: the same model with times; the steps of a training.
- word times after music: those of speech.
- similar commands of the README; Ctrl-C from the wheel: one command of each kind; `tests/app/cli`.
- starts without PyTorch's compiler; plugins of a wheel: the memory of an idle server; what is in the wheel.
- one of two models given back: `test_several_models.py`.
- processes that do not end: processes that crash, return with another model, or cannot start.
- a page with its server; its sample; its code for programs; jumps: `test_page_restarts.py`, with the real server;
  `test_page.py`.
- LiveKit's classes, one of Pipecat's; their examples; the sound of a tab: the other of Pipecat's; a microphone.
- npm: types for Node.js, React and Vue, examples: `npm run check`.
- players of calls: `tests/plugins/carriers`.
- faults of PostgreSQL; killed gateways that count usage; bursts at a fast GPU: faults of SQLite; `test_usage.py`; a
  slower server under three times its load.
- two thirds of the corpus of recordings: those whose clock matters, one of each format.
"""

from pathlib import Path

TESTS = Path(__file__).parent
TIERS = ("quick", "default", "nightly")

QUICK = (
    "app",
    "clients/js/test_page_client.py",
    "clients/python",
    "cluster",
    "engine/decoding",
    "engine/scheduling",
    "engine/checkpoint",
    "plugins",
    "first_hour/test_documented_commands.py",
    "test_clocks.py",
    "test_docs.py",
)
"""Files and folders of `tests` that need one process and no torch."""

DEFAULT: tuple[str, ...] = (
    "app/cli/test_commands.py",
    "app/cli/test_engine_places.py",
    "app/cli/test_hub_models.py",
    "app/cli/test_imports.py",
    "app/cli/test_interrupts.py",
    "app/cli/test_processes.py",
    "app/cli/test_standard_streams.py",
    "app/cli/test_transcribe.py",
    "plugins/accounts/keys/test_killed_gateways.py",
    "app/publish/test_shared_calls.py",
    "app/dialects/deepgram/test_endpoint.py",
    "app/dialects/openai/test_files_endpoint.py",
    "app/dialects/test_file_speakers.py",
    "app/files/test_uploads.py",
    "plugins/accounts/jobs/test_faults.py",
    "plugins/accounts/jobs/test_jobs_endpoint.py",
    "app/media/test_container_clock.py",
    "app/media/test_corpus.py",
    "app/media/test_decoder_workers.py",
    "app/media/test_file_decoder.py",
    "app/media/test_joined_files.py",
    "app/media/test_stream_decoder.py",
    "app/media/test_tracks.py",
    "app/publish/test_rooms_of_several_gateways.py",
    "app/service/test_live_load.py",
    "app/service/test_overload.py",
    "app/session/text/test_hallucination_filter.py",
    "app/sharing/test_redis_store.py",
    "app/sharing/test_store.py",
    "app/test_descriptors.py",
    "app/server/test_openapi.py",
    "app/server/test_several_models.py",
    "app/test_several_gateways.py",
    "app/test_words_heard.py",
    "app/text_rules/test_nothing_remains.py",
    "plugins/telemetry/test_serve.py",
    "clients/python/test_client_command_line.py",
    "clients/python/test_client_readme.py",
    "cluster/local/test_engine_link.py",
    "cluster/local/test_managed_process.py",
    "cluster/local/test_supervisor.py",
    "plugins/ray",
    "engine/checkpoint/test_checkpoint.py",
    "engine/checkpoint/test_ctranslate2_folder.py",
    "engine/checkpoint/test_hub.py",
    "engine/checkpoint/test_openai_files.py",
    "engine/checkpoint/test_tokenizer.py",
    "engine/decoding/test_hotwords.py",
    "engine/decoding/test_logit_rules.py",
    "engine/decoding/test_sampling.py",
    "engine/decoding/test_slot_states.py",
    "engine/decoding/test_transcript.py",
    "engine/decoding/test_word_timing.py",
    "engine/scheduling/test_batch_invariance.py",
    "engine/scheduling/test_encoder_time.py",
    "engine/scheduling/test_encoding_beside_steps.py",
    "engine/scheduling/test_request.py",
    "engine/scheduling/test_steps_ahead.py",
)
"""Files and folders within those of `QUICK` that need more."""

WITHOUT_TORCH = ("app", "clients/python", "plugins/accounts", "plugins/carriers", "plugins/telemetry")
"""Folders whose tests run where there is no torch, but for the files of `WITH_ENGINE`: the service does not need it."""

WITH_ENGINE = (
    "app/cli/test_commands.py",
    "app/cli/test_hub_models.py",
    "app/cli/test_imports.py",
    "app/cli/test_interrupts.py",
    "app/cli/test_processes.py",
    "app/service/test_overload.py",
    "app/session/text/test_hallucination_filter.py",
    "app/test_words_heard.py",
    "plugins/telemetry/test_serve.py",
)
"""Files of these folders that start the real engine."""

NIGHTLY: tuple[str, ...] = (
    "benchmarks",
    "examples/test_node_stream.py",
    "examples/test_react_native.py",
    "pictures",
    "test_people.py",
    "training",
)
"""Files and folders that take long, or protect what no user of the service has.

These are builds, pictures, measurements and training.
"""


def tier_of(path: Path) -> str:
    """Return the tier of a file or folder by the longest entry of the lists that holds it."""
    inside = path.relative_to(TESTS)
    of_place = {place: tier for tier, places in zip(TIERS, (QUICK, DEFAULT, NIGHTLY), strict=True) for place in places}
    for place in (inside, *inside.parents):
        if place.as_posix() in of_place:
            return of_place[place.as_posix()]
    return "default"


def needs_torch(path: Path) -> bool:
    """Whether a file of tests needs torch."""
    inside = path.relative_to(TESTS)
    is_of_service = any(Path(place) in inside.parents for place in WITHOUT_TORCH)
    return tier_of(path) != "quick" and not (is_of_service and inside.as_posix() not in WITH_ENGINE)


def may_hold(path: Path, tier: str) -> bool:
    """Whether a file or folder may hold tests of a tier.

    Markers move single tests into later tiers, never into earlier ones.
    """
    inside = path.relative_to(TESTS)
    below = [place for place in (*QUICK, *DEFAULT, *NIGHTLY) if inside in Path(place).parents]
    return any(TIERS.index(tier_of(each)) <= TIERS.index(tier) for each in (path, *map(TESTS.joinpath, below)))
