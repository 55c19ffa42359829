"""Fetching checkpoints from the hub, with a stand-in for it on the loopback."""

import errno
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.engine.checkpoint_kinds import KINDS, KINDS_SHAPE, Kind
from tests.engine.checkpoints import assert_same_weights, edit_json, make_checkpoint
from tests.stand_in_hub import StandInHub, stand_in_hub
from tutti_server.engine.checkpoint.checkpoint import find_checkpoint, is_hub_name, read_checkpoint
from tutti_server.engine.checkpoint.hub import HubName, fetch_file
from tutti_server.engine.checkpoint.layout import CONFIGURATION_FILES, find_weights
from tutti_server.engine.errors import CheckpointError
from tutti_server.engine.model.weights import load_model

NAME = "someone/whisper"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain checkpoint."""
    return make_checkpoint(tmp_path_factory.mktemp("base") / "checkpoint", KINDS_SHAPE)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[StandInHub]:
    """A hub that this process uses, and an empty cache."""
    with stand_in_hub() as hub:
        hub.use(monkeypatch, tmp_path / "cache")
        yield hub


def go_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def load(name: str) -> None:
    load_model(read_checkpoint(name), CPU, torch.float32)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("openai/whisper-tiny", HubName("openai/whisper-tiny")),
        ("openai/whisper-tiny@main", HubName("openai/whisper-tiny", "main")),
        ("openai/whisper-tiny@refs/pr/3", HubName("openai/whisper-tiny", "refs/pr/3")),
        ("my-whisper", None),
        ("my-whisper@main", None),
        ("a/b/c", None),
        ("a/b@", None),
        ("a/@main", None),
        ("./b", None),
        ("~/b", None),
        ("/a", None),
    ],
)
def test_a_name_on_the_hub_has_an_owner_and_perhaps_a_revision(text: str, name: HubName | None) -> None:
    """A text that comes apart is put together again."""
    assert HubName.parse(text) == name
    assert is_hub_name(text) == (name is not None)
    if name:
        assert str(name) == text


@pytest.mark.parametrize("is_repository", [True, False])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_of_model_is_loaded_or_refused(
    hub: StandInHub, base: Path, tmp_path: Path, kind: Kind, is_repository: bool
) -> None:
    """In a folder or on the hub, from which nothing is fetched but the configuration and one set of weights.

    Every form of the weights gives the model that the plain one gives.
    """
    folder = kind.make(base, tmp_path / "folder")
    if is_repository:
        hub.add(NAME, folder)
    refusal: AbstractContextManager[object] = nullcontext()
    if kind.error is not None:
        refusal = pytest.raises(CheckpointError, match=kind.error)
    name = NAME if is_repository else str(folder)
    with refusal:
        load(name) if kind.tolerance is None else assert_same_weights(Path(name), base, kind.tolerance)
    others = {*CONFIGURATION_FILES, "model.safetensors.index.json", "pytorch_model.bin.index.json"}
    assert hub.fetched() - others == (set(kind.files) if is_repository else set())


def test_a_revision_is_a_branch_a_tag_or_a_commit(hub: StandInHub, base: Path, tmp_path: Path) -> None:
    """Without one, the branch main is meant."""
    old = KINDS[0].make(base, tmp_path / "old")
    new = KINDS[0].make(base, tmp_path / "new")
    edit_json(new / "generation_config.json", suppress_tokens=[5])
    hub.add(NAME, old, "main", "v1")
    commits = hub.add(NAME, new, "main", "refs/pr/3").references
    for revision, suppressed in (("", (5,)), ("@main", (5,)), ("@refs/pr/3", (5,)), ("@v1", (1, 2, 7))):
        checkpoint = read_checkpoint(NAME + revision)
        assert checkpoint.generation.suppress_tokens == suppressed
        assert checkpoint.name == NAME + revision
    assert find_checkpoint(f"{NAME}@{commits['v1']}") == find_checkpoint(f"{NAME}@v1")
    with pytest.raises(CheckpointError, match=f"expected a branch, a tag or a commit of {hub.url}/{NAME}, got 'v9'"):
        find_checkpoint(f"{NAME}@v9")


def test_a_commit_in_the_cache_needs_no_hub(hub: StandInHub, base: Path) -> None:
    """A commit never changes, so no request is made."""
    commit = hub.add(NAME, base).references["main"]
    folder = find_checkpoint(f"{NAME}@{commit}")
    hub.requests.clear()
    assert find_checkpoint(f"{NAME}@{commit}") == folder
    assert hub.requests == []


@pytest.mark.parametrize("trouble", ["offline", "status 500", "gone", "unreachable"])
def test_without_the_hub_the_cache_is_used(
    hub: StandInHub, base: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, trouble: str
) -> None:
    """A warning says why."""
    import huggingface_hub.constants

    hub.add(NAME, base, "main", "v1")
    folders = [find_checkpoint(NAME), find_checkpoint(f"{NAME}@v1")]
    match trouble:
        case "offline":
            go_offline(monkeypatch)
        case "status 500":
            hub.fault = 500
        case "gone":
            hub.repositories.clear()
        case "unreachable":
            monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:1")
    assert [find_checkpoint(NAME), find_checkpoint(f"{NAME}@v1")] == folders
    assert f"Using the copy in the cache, {folders[0]}" in caplog.text


def test_without_the_hub_and_the_cache_the_error_says_what_to_do(
    hub: StandInHub, base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another model or another revision in the cache does not help."""
    import huggingface_hub.constants

    hub.add(NAME, base)
    find_checkpoint(NAME)
    hub.fault = 503
    with pytest.raises(CheckpointError, match=r"the hub at http://127.* answered with status 503; try again later"):
        find_checkpoint(f"{NAME}@v1")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(CheckpointError, match=r"the download from the hub at http://127\.0\.0\.1:1 failed \(.*refused"):
        find_checkpoint("someone/other")
    go_offline(monkeypatch)
    with pytest.raises(CheckpointError, match=f"HF_HUB_OFFLINE is set, and the model is not in the cache {tmp_path}"):
        find_checkpoint("someone/other")


def test_a_download_that_stopped_half_way_is_not_taken_for_complete(
    hub: StandInHub, base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The configuration is in the cache, and one of two parts of the weights."""
    sharded = next(kind for kind in KINDS if kind.name == "sharded")
    repository = hub.add(NAME, sharded.make(base, tmp_path / "folder"))
    repository.truncated = {"model-00002-of-00002.safetensors"}
    with pytest.raises(CheckpointError, match=r"failed \(Consistency check failed.*\); try again"):
        find_checkpoint(NAME)
    repository.truncated = set()
    with monkeypatch.context() as patch:
        go_offline(patch)
        with pytest.raises(CheckpointError, match="the model is not in the cache"):
            find_checkpoint(NAME)
    hub.requests.clear()
    load(NAME)
    assert "model-00001-of-00002.safetensors" not in hub.fetched()


def test_an_update_that_stops_leaves_the_copy_in_the_cache(hub: StandInHub, base: Path, tmp_path: Path) -> None:
    """At every start until it is fetched, also where the disk is too small for it.

    A single file, such as a speaker network, is kept in the same way.
    """
    hub.add(NAME, base)
    folder, file = find_checkpoint(NAME), fetch_file(HubName(NAME), ".safetensors")
    new = KINDS[0].make(base, tmp_path / "new")
    save_file({"encoder": torch.ones(9)}, new / "model.safetensors")
    repository = hub.add(NAME, new)
    repository.truncated = {"model.safetensors"}
    assert [find_checkpoint(NAME), find_checkpoint(NAME)] == [folder, folder]
    assert fetch_file(HubName(NAME), ".safetensors") == file
    repository.reported_sizes = {"model.safetensors": 10**18}
    assert find_checkpoint(NAME) == folder


def test_a_gated_model_needs_a_token_with_access(
    hub: StandInHub, base: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The error says where its conditions are accepted."""
    hub.add(NAME, base).token = "hf_right"
    page = re.escape(f"accept its conditions at {hub.url}/{NAME}, and set HF_TOKEN")
    with pytest.raises(CheckpointError, match=f"the model is gated, and there is no token; {page}"):
        find_checkpoint(NAME)
    hub.use(monkeypatch, tmp_path / "cache", token="hf_wrong")
    with pytest.raises(CheckpointError, match=f"the account of your token has no access; {page}"):
        find_checkpoint(NAME)
    hub.use(monkeypatch, tmp_path / "cache", token="hf_right")
    load(NAME)


@pytest.mark.parametrize("is_private", [False, True])
def test_a_model_that_does_not_seem_to_exist_is_reported(hub: StandInHub, base: Path, is_private: bool) -> None:
    """The hub does not tell a private model from none."""
    if is_private:
        repository = hub.add(NAME, base)
        repository.token, repository.is_private = "hf_right", True
    with pytest.raises(
        CheckpointError, match="expected a folder or a model on the hub, found neither; if the model is private"
    ):
        find_checkpoint(NAME)


@pytest.mark.parametrize("name", ["some one/whisper", "-a/whisper", "a/b--c..d"])
def test_a_name_that_the_hub_does_not_allow_is_refused(hub: StandInHub, name: str) -> None:
    with pytest.raises(CheckpointError, match="expected a name on the hub such as openai/whisper-small"):
        find_checkpoint(name)
    assert hub.requests == []


def test_a_model_that_does_not_fit_on_the_disk_is_not_fetched(hub: StandInHub, base: Path) -> None:
    """The error says how much is needed and how much is free."""
    hub.add(NAME, base).reported_sizes = {"model.safetensors": 10**18}
    with pytest.raises(
        CheckpointError, match=r"1000000000\.0 GB are needed, .* GB are free; make room, or set HF_HOME"
    ):
        find_checkpoint(NAME)
    assert "model.safetensors" not in hub.fetched()


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.ENOSPC, "the disk is too full .*; make room"), (errno.EACCES, "cannot be written: .*; set HF_HOME")],
)
def test_a_disk_that_fails_while_a_file_is_written_is_reported(
    hub: StandInHub, base: Path, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    import huggingface_hub.file_download

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, "no", "some file")

    hub.add(NAME, base)
    monkeypatch.setattr(huggingface_hub.file_download, "http_get", fail)
    with pytest.raises(CheckpointError, match=message):
        find_checkpoint(NAME)


def test_plain_weights_come_before_variants() -> None:
    """A variant takes twice the space, or is less exact."""
    names = ["model.fp16.safetensors", "model.safetensors.index.fp32.json", "pytorch_model.bin", "model.safetensors"]
    assert find_weights(names) == "model.safetensors"
    assert find_weights(names[:3]) == "pytorch_model.bin"
    assert find_weights(names[:2]) == "model.fp16.safetensors"
    assert find_weights(["model.fp32-00001-of-00002.safetensors", "training_args.bin"]) is None
