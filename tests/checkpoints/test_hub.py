import fnmatch
from unittest import mock

import huggingface_hub
import pytest
from huggingface_hub import errors

from sbjax.checkpoints import CheckpointError
from sbjax.checkpoints.hub import resolve


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """A hub with the given files; ``calls`` are the patterns that were asked for."""

    class Hub:
        def __init__(self):
            self.files, self.error, self.calls = ("model.safetensors",), None, []

        def download(self, repo, *, revision, allow_patterns, ignore_patterns):
            if self.error is not None:
                raise self.error
            self.calls.append((repo, revision, tuple(allow_patterns)))
            folder = tmp_path / "cache"
            folder.mkdir(exist_ok=True)
            for name in self.files:
                if any(fnmatch.fnmatch(name, pattern) for pattern in allow_patterns):
                    (folder / name).write_bytes(b"")
            return str(folder)

    hub = Hub()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.download)
    return hub


def test_a_folder_is_taken_as_it_is(tmp_path, hub):
    assert resolve(tmp_path) == tmp_path
    assert hub.calls == []


def test_a_hub_id_is_downloaded_without_pickles(hub):
    assert (resolve("owner/name", "v1") / "model.safetensors").is_file()
    assert [(repo, revision) for repo, revision, _ in hub.calls] == [("owner/name", "v1")]
    assert "pytorch_model*.bin" not in hub.calls[0][2]


def test_pickles_are_downloaded_where_there_is_nothing_else(hub):
    hub.files = ("pytorch_model.bin",)
    assert (resolve("owner/name") / "pytorch_model.bin").is_file()
    assert len(hub.calls) == 2


@pytest.mark.parametrize(
    "make_error, message",
    [
        (
            lambda: errors.LocalEntryNotFoundError("no"),
            "cannot be reached.*hf download owner/name --local-dir",
        ),
        (lambda: errors.OfflineModeIsEnabled("no"), "cannot be reached.*hf download owner/name --local-dir"),
        (lambda: ConnectionError("no"), "cannot be reached"),
        (
            lambda: errors.GatedRepoError("no", response=mock.Mock()),
            "gated: accept its licence.*hf auth login",
        ),
        (lambda: errors.RepositoryNotFoundError("no", response=mock.Mock()), "no such model on the hub"),
        (lambda: errors.RevisionNotFoundError("no", response=mock.Mock()), "no revision 'v1' on the hub"),
    ],
)
def test_errors_of_the_hub_say_what_to_do(hub, make_error, message):
    hub.error = make_error()
    with pytest.raises(CheckpointError, match=message):
        resolve("owner/name", "v1")


@pytest.mark.parametrize("source", ["no_such_folder", "a/b/c", "/no/such", "./x", "sp ace/x"])
def test_what_is_neither_a_folder_nor_a_hub_id(source, hub):
    with pytest.raises(CheckpointError, match="no folder here, and no hub id"):
        resolve(source)


def test_a_file_is_refused(tmp_path, hub):
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match="is a file; give the folder"):
        resolve(tmp_path / "model.safetensors")


def test_a_revision_of_a_folder_is_refused(tmp_path, hub):
    with pytest.raises(CheckpointError, match="revision 'v1' is of the hub"):
        resolve(tmp_path, "v1")
