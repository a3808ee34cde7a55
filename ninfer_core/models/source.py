"""resolve_model: from what a person typed to a model directory on this machine. Imports neither torch nor the hub
unless a name has to be looked up."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ninfer_core.errors import ModelError
from ninfer_core.models.download import Download, DownloadProgress
from ninfer_core.models.hub_cache import HubCache

_NAME = re.compile(r"(?P<repo>[\w][\w.-]*/[\w][\w.-]*)(?:@(?P<revision>[\w][\w./-]*))?", re.ASCII)


def resolve_model(
    name: str, *, offline: bool = False, progress: Callable[[DownloadProgress], None] | None = None
) -> Path:
    """The directory of a model. An existing path wins; else `owner/name[@revision]` from the Hugging Face hub.

    A snapshot in the cache is used as it is, without asking the network. Environment: HF_HOME, HF_HUB_CACHE,
    HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE.

    Args:
        offline: never open a connection.
        progress: called before a download (total size and place), while it runs and at its end.

    Raises:
        ModelError: no such path or model, or it cannot be fetched; one line that says what to do.
    """
    path = Path(name).expanduser()
    if name and _exists(path):
        return path
    match = _NAME.fullmatch(name)
    if match is None or ".." in name:
        raise ModelError(f"{name or repr(name)}: no such directory, and not the owner/name[@revision] of a model")
    repo, revision = match["repo"], match["revision"] or "main"
    cache = HubCache.of(repo)
    found = cache.snapshot(revision)
    if found is not None:
        return found
    if offline or _offline():
        raise ModelError(f"{name} is not in {cache.root.parent}: run once without --offline and HF_HUB_OFFLINE")
    return _download(name, Download(repo, revision, cache, progress))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # too long, or a null character
        return False


def _offline() -> bool:
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)


def _download(name: str, download: Download) -> Path:
    """Run it, turning the hub's errors into one line each."""
    from huggingface_hub import constants, errors

    try:
        return download.run()
    except ModelError:
        raise
    except errors.GatedRepoError as error:
        raise ModelError(f"{name}: access must be granted at {constants.ENDPOINT} first: then set HF_TOKEN") from error
    except errors.RepositoryNotFoundError as error:
        raise ModelError(
            f"{name}: {constants.ENDPOINT} has no such model, or it is private: check the name, or set HF_TOKEN"
        ) from error
    except errors.RevisionNotFoundError as error:
        raise ModelError(f"{name}: the model has no such revision: check what follows the @") from error
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", "an error")
        raise ModelError(f"{name}: {constants.ENDPOINT} answered {status}: try again later") from error
    except Exception as error:
        # The hub's transport changed twice (requests, httpx, httpx2): anything that is no programming error here is
        # the network or the disk. What has arrived stays and is continued.
        if isinstance(error, (TypeError, AttributeError, NameError, AssertionError)):
            raise
        reason = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise ModelError(f"{name}: the download stopped ({reason}): run again to continue it") from error
