"""SessionKey: the user's secret that proves which sessions this user's own ninfer has written (product: Trust)."""

from __future__ import annotations

import hmac
import os
import secrets
import stat
from pathlib import Path

from ninfer_core.errors import SessionError

KEY_BYTES = 32
_DOMAIN = b"ninfer session 1\0"


class SessionKey:
    """A checksum shows damage; only a tag under a secret shows that nobody else composed text and state."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @classmethod
    def at(cls, path: Path) -> SessionKey:
        """The key of a file, made on first use: 32 random bytes, readable by their owner alone.

        Raises:
            SessionError: others can read the file, or it cannot be had.
        """
        try:
            found = cls._read(path)
            return found if found is not None else cls._create(path)
        except OSError as error:
            reason = error.strerror or error
            raise SessionError(f"the session key {path} cannot be used ({reason}): check its directory") from error

    @classmethod
    def _read(cls, path: Path) -> SessionKey | None:
        try:
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            facts = os.fstat(handle)
            secret = os.read(handle, KEY_BYTES + 1) if stat.S_ISREG(facts.st_mode) else b""
        finally:
            os.close(handle)
        if facts.st_uid != os.getuid() or facts.st_mode & 0o077:
            raise SessionError(f"the session key {path} belongs to or is open to others: remove it, a new one is made")
        if len(secret) != KEY_BYTES:
            raise SessionError(f"the session key {path} is damaged: remove it, a new one is made")
        return cls(secret)

    @classmethod
    def _create(cls, path: Path) -> SessionKey:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        part = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                os.write(handle, secrets.token_bytes(KEY_BYTES))
                os.fsync(handle)
            finally:
                os.close(handle)
            os.link(part, path)  # of two processes that make one at the same time, one wins and both read it
        except FileExistsError:
            pass
        finally:
            part.unlink(missing_ok=True)
        found = cls._read(path)
        if found is None:
            raise SessionError(f"the session key {path} was removed while it was made: try again")
        return found

    def sign(self, digest: str) -> str:
        """The tag of a header's digest, hexadecimal."""
        return hmac.new(self._secret, _DOMAIN + digest.encode(), "sha256").hexdigest()

    def proves(self, digest: str, tag: str) -> bool:
        return hmac.compare_digest(self.sign(digest).encode(), tag.encode("utf-8", "replace"))
