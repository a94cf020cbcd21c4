"""From what a user names, a folder or a hub id, to a folder on this machine."""

import pathlib

import huggingface_hub
from huggingface_hub import errors
from huggingface_hub.utils import validate_repo_id

from sbjax.checkpoints.errors import CheckpointError

# Subfolders and consolidated files hold the same weights in other formats.
_PLAIN = ["*.json", "*.jinja", "*.model", "merges.txt", "*.safetensors"]
_PICKLES = ["pytorch_model*.bin"]
_IGNORED = ["*/*", "consolidated*", "adapter*"]


def resolve(source: str | pathlib.Path, revision: str | None = None) -> pathlib.Path:
    """Finds a checkpoint's folder, downloading it where ``source`` is a hub id.

    Args:
      source: a folder, or ``owner/name`` on the Hugging Face hub.
      revision: branch, tag or commit on the hub; None is the newest.

    Raises:
      CheckpointError: neither a folder nor a reachable hub id; says what to do.
    """
    path = pathlib.Path(source).expanduser()
    if path.is_dir():
        if revision is not None:
            raise CheckpointError(f"revision {revision!r} is of the hub, but {path} is a folder here")
        return path
    if path.exists():
        raise CheckpointError(f"{path} is a file; give the folder that holds config.json and the weights")
    if not _is_hub_id(str(source)):
        raise CheckpointError(f"{source} is no folder here, and no hub id (owner/name) either")
    return _download(str(source), revision)


def _is_hub_id(text: str) -> bool:
    try:
        validate_repo_id(text)
    except errors.HFValidationError:
        return False
    return text.count("/") == 1


def _download(repo: str, revision: str | None) -> pathlib.Path:
    folder = _snapshot(repo, revision, _PLAIN)
    if not any(folder.glob("*.safetensors")):
        folder = _snapshot(repo, revision, _PLAIN + _PICKLES)
    return folder


def _snapshot(repo: str, revision: str | None, patterns: list[str]) -> pathlib.Path:
    try:
        folder = huggingface_hub.snapshot_download(
            repo, revision=revision, allow_patterns=patterns, ignore_patterns=_IGNORED
        )
    except errors.GatedRepoError as error:
        raise CheckpointError(
            f"{repo} is gated: accept its licence on its page of the hub, then log in with 'hf auth login'"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise CheckpointError(f"{repo} has no revision {revision!r} on the hub") from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"{repo} is no folder here, and there is no such model on the hub, or it is private: check the "
            "spelling, or log in with 'hf auth login'"
        ) from error
    except (errors.HTTPError, OSError) as error:  # "offline" and "not in the cache" are OSErrors too
        raise CheckpointError(
            f"{repo} is no folder here, and the hub cannot be reached ({type(error).__name__}) for what is "
            f"not in its cache: where there is a network run 'hf download {repo} --local-dir DIR', copy DIR "
            "here, and give its path"
        ) from error
    return pathlib.Path(folder)
