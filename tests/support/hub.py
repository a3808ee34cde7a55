"""Hub: a local server that speaks as much of the Hugging Face hub's protocol as a download needs."""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import unquote, urlparse

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REVISIONS = ("main", "v1.0", COMMIT)


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    range: str | None
    authorization: str | None


class Hub:
    """A context manager around the server's thread.

    Attributes:
        models: repository -> file name -> content.
        cut: file name -> bytes after which the connection is dropped, counted from the file's start.
        ranges: False answers range requests with the whole file.
        status: repository -> the status that its information request gets.
        requests: what was asked, in order.
    """

    def __init__(self, models: dict[str, dict[str, bytes]]) -> None:
        self.models = models
        self.cut: dict[str, int] = {}
        self.ranges = True
        self.status: dict[str, int] = {}
        self.requests: list[Request] = []
        hub = self

        class Handler(_Handler):
            server_hub = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Hub:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    server_hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        hub = self.server_hub
        path = unquote(urlparse(self.path).path)
        hub.requests.append(Request(self.command, path, self.headers["Range"], self.headers["Authorization"]))
        if path.startswith("/api/models/"):
            self._information(path.removeprefix("/api/models/"))
            return
        repo, _, rest = path[1:].partition("/resolve/")
        _, _, name = rest.partition("/")
        content = hub.models.get(repo, {}).get(name)
        if content is None:
            self._error(404, "EntryNotFound")
            return
        self._file(name, content)

    def _information(self, path: str) -> None:
        hub = self.server_hub
        repo, _, revision = path.partition("/revision/")
        tree = repo.partition("/tree/")
        if tree[1]:
            repo, revision = tree[0], tree[2]
        if repo in hub.status:
            status = hub.status[repo]
            self._error(status, "GatedRepo" if status == 403 else "")
        elif repo not in hub.models:
            self._error(404, "RepoNotFound")
        elif (revision or "main") not in REVISIONS:
            self._error(404, "RevisionNotFound")
        elif tree[1]:
            files = hub.models[repo].items()
            self._json([{"type": "file", "path": n, "size": len(c), "oid": _etag(n, c)} for n, c in files])
        else:
            files = hub.models[repo].items()
            siblings = [{"rfilename": n, "size": len(c), "blobId": _etag(n, c)} for n, c in files]
            self._json({"id": repo, "sha": COMMIT, "siblings": siblings, "private": False, "tags": [], "downloads": 0})

    def _json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _error(self, status: int, code: str) -> None:
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _file(self, name: str, content: bytes) -> None:
        hub, begin = self.server_hub, 0
        wanted = self.headers["Range"]
        if wanted and hub.ranges:
            begin = int(wanted.removeprefix("bytes=").split("-")[0])
        self.send_response(206 if begin else 200)
        self.send_header("ETag", f'"{_etag(name, content)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Content-Length", str(len(content) - begin))
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        if self.command == "GET":
            end = hub.cut.get(name, len(content))
            self.wfile.write(content[begin:end])
            if end < len(content):
                self.close_connection = True


def _etag(name: str, content: bytes) -> str:
    """As the hub has it: SHA-256 for large files, git's blob id for others."""
    if name.endswith(".safetensors"):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
