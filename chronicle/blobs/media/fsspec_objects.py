"""Objects through fsspec, on any of its file systems: ``s3://``, ``gs://``, ``memory://`` and others.

The one module that imports fsspec; it is imported when a store is not on a local disk. Each request has a deadline, and
is retried with exponential back-off after a transient failure. Retries are safe: objects are immutable, so a repeated
write is idempotent. A medium makes an object visible only when it is complete: an object is one PUT.
"""

from __future__ import annotations

import asyncio
import errno
import random
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import fsspec
from fsspec.asyn import sync
from fsspec.exceptions import FSTimeoutError

from chronicle.blobs.media.objects import STAMP_S, shown_url
from chronicle.blobs.wait_notices import Wait, track
from chronicle.errors import Conflict, InvalidInput, NotFound, Unavailable
from chronicle.settings import STORE_PATIENCE_S, read_settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence

__all__ = ["Patience", "RemoteObjects", "open_remote", "preload"]

T = TypeVar("T")

_ATTEMPTS: Final = 5
"""Least number of attempts: one attempt at a large transfer may take longer than `STORE_PATIENCE_S`."""
_BACKOFF_S: Final = 0.1
"""Doubled for each further attempt, with jitter, up to `_LONGEST_PAUSE_S`."""
_LONGEST_PAUSE_S: Final = 2.0
"""With this limit an outage costs two or three seconds more than it lasts."""
_SHORTEST_ATTEMPT_S: Final = 1.0
_REQUEST_S: Final = 10.0
"""Timeout of a request that transfers few bytes."""
_BYTES_PER_S: Final = 256 * 1024
"""A large transfer gets the time that it takes on a slow link."""
_TOGETHER: Final = 8
"""Concurrent requests of one caller."""
_S3: Final = ("s3", "s3a")
_session: Any = None
"""botocore's cached service model of S3, if it was preloaded; it is read from 2 MB of JSON."""
_MODIFIED: Final = ("LastModified", "mtime", "last_modified", "created")
"""Names of an object's time in what the file systems of S3, Google's, Azure's and memory say of it."""
_S3_PUT_BYTES: Final = 5 * 1024**3
"""The most that S3 takes in one PUT. s3fs would use a multipart upload from 100 MiB on, and the parts of a killed
process's upload stay, invisible and billed; one PUT leaves nothing."""
_CHANGES: Final = frozenset({"pipe_file", "rm_file"})
"""Methods that change something."""
_NEVER: Final = (PermissionError, NotImplementedError)
_REFUSALS: Final = re.compile(r"Credential|TokenRetrieval|ProfileNotFound|ParamValidation")
"""Parts of the names of errors that a client raises without a server's answer."""
_STATUSES: Final = range(100, 600)
_REFUSED: Final = range(300, 500)
"""HTTP statuses of permanent refusals: a bucket elsewhere (301), missing permission (403)."""
_CAUSES: Final = 4
"""Most errors of a cause chain that are searched for an HTTP status."""
_PASSING_STATUSES: Final = frozenset({408, 409, 425, 429})
"""Transient ones of these HTTP statuses: timeout, conflict with another request, too early, too many requests."""
_PASSING_CODES: Final = frozenset(
    {"BadDigest", "IncompleteBody", "RequestTimeout", "SlowDown", "XAmzContentSHA256Mismatch"}
)
"""Transient S3 error codes with status 400: the request timed out, or was altered in transit."""


class Patience:
    """The retry policy for a medium.

    Args:
        attempts: the least number of attempts before a request fails.
        backoff_s: the first pause between two attempts, seconds; each later one is doubled, up to `_LONGEST_PAUSE_S`,
            and all have jitter.
        request_s: the timeout of a request that transfers few bytes, seconds.
        repeat_s: for how long a request is retried, seconds; longer only to reach ``attempts``.
    """

    def __init__(
        self,
        attempts: int = _ATTEMPTS,
        backoff_s: float | None = None,
        request_s: float = _REQUEST_S,
        repeat_s: float = STORE_PATIENCE_S,
    ) -> None:
        self.attempts = attempts
        self.backoff_s = _BACKOFF_S if backoff_s is None else backoff_s
        self.request_s = request_s
        self.repeat_s = repeat_s

    def pause_s(self, attempt: int) -> float:
        """Return the pause after a failed attempt, counted from 1."""
        doublings = min(attempt - 1, 16)  # exceeds the longest pause by far
        return min(self.backoff_s * 2.0**doublings, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.5)

    def is_over(self, attempt: int, elapsed_s: float) -> bool:
        """Return whether to stop retrying.

        Args:
            attempt: the number of attempts so far.
            elapsed_s: seconds since the first attempt began, including the next pause.
        """
        return attempt >= self.attempts and elapsed_s >= self.repeat_s

    def deadline_s(self, size: int) -> float:
        """Return the timeout of a request that transfers ``size`` bytes."""
        return self.request_s + size / _BYTES_PER_S

    def attempt_s(self, size: int, elapsed_s: float) -> float:
        """Return the timeout of an attempt that begins ``elapsed_s`` after the first; none lasts beyond `max_s`."""
        return min(self.deadline_s(size), max(_SHORTEST_ATTEMPT_S, self.max_s(size) - elapsed_s))

    def max_s(self, size: int) -> float:
        """Return the longest duration of all attempts and their pauses."""
        pauses_s = sum(min(self.backoff_s * 2.0**number, _LONGEST_PAUSE_S) for number in range(self.attempts - 1)) * 1.5
        return max(self.attempts * self.deadline_s(size) + pauses_s, self.repeat_s)


def open_remote(url: str, options: Mapping[str, Any] | None = None, patience: Patience | None = None) -> RemoteObjects:
    """Return the objects below a URL.

    Args:
        url: such as ``s3://bucket/prefix``.
        options: arguments of the fsspec file system, such as credentials.
        patience: the retry policy; by default that of `chronicle.settings`.

    Raises:
        InvalidInput: the URL's protocol is unknown, a package that fsspec needs for it is not installed, or the
            patience in the environment is not a number.
        Unavailable: its server is not reached.
    """
    patience = patience if patience is not None else Patience(repeat_s=read_settings().store_patience_s)
    protocol = url.partition("://")[0]
    given = dict(options or {})
    if protocol in _S3:
        if shown_url(url) != url.rstrip("/"):
            raise InvalidInput(
                f"{shown_url(url)!r} was given with a user or a query in it; credentials are taken from where the AWS "
                "tools take them: AWS_ACCESS_KEY_ID and its like, or ~/.aws"
            )
        given = _s3_options(given, patience)
    try:
        with _without("httpx._main", "httpx2._main"):
            filesystem, path = fsspec.core.url_to_fs(url, **given)
    except ImportError as error:
        extra = "; install s3fs, which the extra s3 brings" if protocol in _S3 else ""
        raise InvalidInput(f"{shown_url(url)!r} cannot be a store: {error}{extra}") from error
    except ValueError as error:
        raise InvalidInput(f"{shown_url(url)!r} cannot be a store: {error}") from error
    except OSError as error:  # of a protocol that connects at once
        raise Unavailable(
            f"{shown_url(url)} cannot be reached: {error.strerror or error}; check the URL, and that its server runs"
        ) from error
    if hasattr(filesystem, "retries"):
        filesystem.retries = 1  # this module retries: one deadline, one pause, one message
    return RemoteObjects(filesystem, path.rstrip("/"), shown_url(url), patience)


def preload(protocol: str) -> None:
    """Load the modules and data of a protocol, so that processes forked from this one need not; starts no thread.

    Measured for S3: the first request after 80 instead of 520 ms, with 18 instead of 50 MB of private memory.
    """
    global _session
    try:
        with _without("httpx", "httpx2"):  # a client that s3fs does not use; this process has one thread
            fsspec.get_filesystem_class(protocol)
        if protocol in _S3:
            from aiobotocore.session import AioSession  # noqa: PLC0415 - what s3fs is made of

            _session = AioSession()
            loader = _session.get_component("data_loader")
            for model in ("service-2", "endpoint-rule-set-1"):
                loader.load_service_model("s3", model)
            for data in ("endpoints", "partitions", "sdk-default-configuration"):
                loader.load_data(data)
    except (ImportError, ValueError):
        return  # reported when such a store is opened


@contextmanager
def _without(*names: str) -> Iterator[None]:
    """Let the import of modules fail meanwhile, unless they are imported already.

    For modules that the libraries of s3fs import where they are installed, and do without where they are not: httpx
    imports its command line, and with it rich and pygments, which is a fifth of the import of s3fs. A thread that
    imports httpx meanwhile gets it without its command line.
    """
    left_out = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(left_out, cast("Any", None)))
    try:
        yield
    finally:
        for name in left_out:
            sys.modules.pop(name, None)


def _s3_options(given: dict[str, Any], patience: Patience) -> dict[str, Any]:
    config = {
        "retries": {"total_max_attempts": 1, "mode": "standard"},
        "connect_timeout": patience.request_s,
        "read_timeout": patience.request_s,
        **given.pop("config_kwargs", {}),
    }
    session = {"session": _session} if _session is not None else {}
    return {"use_listings_cache": False, **session, **given, "config_kwargs": config}


class RemoteObjects:
    """Objects through an fsspec file system. Safe to share between threads.

    Args:
        filesystem: the fsspec file system.
        root: the path of the store in it.
        shown: the store's name for messages.
        patience: the retry policy.
        sleep: waits between attempts.
        now_s: returns the monotonic time, seconds.
    """

    def __init__(
        self,
        filesystem: fsspec.AbstractFileSystem,
        root: str,
        shown: str,
        patience: Patience,
        sleep: Callable[[float], None] = time.sleep,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        protocols = filesystem.protocol if isinstance(filesystem.protocol, tuple) else (filesystem.protocol,)
        self.is_far = "memory" not in protocols
        """Whether a request crosses a network."""
        self._put_options = {"chunksize": _S3_PUT_BYTES} if "s3" in protocols else {}
        self._filesystem = filesystem
        self._root = root
        self.shown = shown
        """The store's URL without secrets."""
        self._patience = patience
        self._sleep = sleep
        self._now_s = now_s
        self.before_change: Callable[[], None] = _nothing
        """Called before each attempt to store or to remove an object; what it raises is raised, and nothing is done."""

    def write(self, name: str, parts: Sequence[bytes]) -> None:
        """Store an object; the medium makes it visible when it is complete."""
        self._write(name, b"".join(parts), "overwrite")

    def create(self, name: str, data: bytes) -> None:
        """Store an object unless the name is taken; of several concurrent callers one succeeds.

        Raises:
            Conflict: the object exists, with other bytes.
            Unavailable: the medium could not store it, or it is unknown whether it did.
        """
        try:
            self._write(name, data, "create")
        except FileExistsError as error:
            # It may have been stored by an earlier attempt whose answer was lost.
            if self.read(name) != data:
                raise Conflict(f"{self.shown}/{name} is there already") from error

    def read(self, name: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return bytes of an object."""
        if size == 0:
            return b""
        end = None if size is None or offset < 0 else offset + size
        try:
            # Always a range: s3fs would ask for the size of a whole object first, and list its folder if it is missing.
            return bytes(self._request(name, size or 0, "cat_file", self._path(name), start=offset, end=end))
        except FileNotFoundError as error:
            raise NotFound(f"no object {self.shown}/{name}") from error

    def read_many(self, wanted: Sequence[tuple[str, int, int]]) -> list[bytes | NotFound]:
        """Return ranges of objects, several at a time; for a missing object, the error."""

        def one(place: tuple[str, int, int]) -> bytes | NotFound:
            try:
                return self.read(*place)
            except NotFound as error:
                return error

        if len(wanted) < 2:
            return [one(place) for place in wanted]
        with ThreadPoolExecutor(min(_TOGETHER, len(wanted)), "chronicle-read") as pool:
            return list(pool.map(one, wanted))

    def size(self, name: str) -> int:
        """Return an object's size in bytes."""
        try:
            return int(self._request(name, 0, "size", self._path(name)))
        except FileNotFoundError as error:
            raise NotFound(f"no object {self.shown}/{name}") from error

    def modified_ms(self, name: str) -> int | None:
        """Return when an object was stored, by the medium's clock; ``None`` if the medium does not say."""
        described = self._request(name, 0, "info", self._path(name))
        times = (described.get(key) for key in _MODIFIED)
        return next((round(time.timestamp() * 1000) for time in times if isinstance(time, datetime)), None)

    def names(self, folder: str) -> list[str]:
        """Return the names of all objects below a folder."""
        return list(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the names of all objects below a folder, with their sizes in bytes."""
        self._filesystem.invalidate_cache()
        try:
            found = self._request(folder, 0, "find", self._path(folder), detail=True)
        except FileNotFoundError:
            return {}
        cut = len(self._filesystem._strip_protocol(self._root)) + 1  # noqa: SLF001 - normalises paths for comparison
        # s3fs returns the folder itself if it was empty when listed and got an object a moment later.
        objects = ((path, info) for path, info in found.items() if info["type"] != "directory")
        return {path[cut:]: int(info["size"] or 0) for path, info in objects}

    def delete(self, name: str) -> None:
        """Remove an object."""
        try:
            self._request(name, 0, "rm_file", self._path(name))
        except FileNotFoundError:
            return

    def stamp(self, name: str) -> object:
        """Return the current minute: a request for each put would cost as much as the put."""
        return name, int(time.monotonic() // STAMP_S)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _write(self, name: str, data: bytes, mode: str) -> None:
        try:
            self._request(name, len(data), "pipe_file", self._path(name), data, mode=mode, **self._put_options)
        except FileNotFoundError as error:
            raise Unavailable(f"{self.shown} cannot be written: {_reason(error)}; make its bucket first") from error

    def _request(self, name: str, size: int, method: str, *arguments: Any, **options: Any) -> Any:
        """Make a request, with retries, and return its result.

        Args:
            name: the object's.
            size: about how many bytes are transferred.
            method: of the file system.
            arguments: for the method.
            options: for the method.

        Raises:
            FileNotFoundError, FileExistsError: the medium's answers.
            Unavailable: anything else.
        """
        patience = self._patience
        began_s = self._now_s()
        wait = Wait(self.shown, patience.max_s(size), time.monotonic())
        elapsed_s = 0.0
        changes = method in _CHANGES
        with track(wait):
            while True:
                if changes:
                    self.before_change()
                try:
                    return self._call(method, patience.attempt_s(size, elapsed_s), arguments, options)
                except (FileNotFoundError, FileExistsError):
                    raise
                except Exception as error:  # each medium's client has its own error classes
                    if method == "cat_file" and _is_beyond_end(error):
                        return b""
                    reason = _reason(error)
                    if _is_refusal(error):
                        refused = f"{self.shown}/{name} was refused: {reason}"
                        raise Unavailable(f"{refused}; check the endpoint, the credentials and their rights") from error
                    pause_s = patience.pause_s(wait.attempt)
                    elapsed_s = self._now_s() - began_s
                    if patience.is_over(wait.attempt, elapsed_s + pause_s):
                        raise Unavailable(
                            f"{self.shown} does not answer ({wait.attempt} attempts in {elapsed_s:.0f} s, the last "
                            f"for {name}: {reason}); check the network and the endpoint, then try again"
                        ) from error
                wait.reason = reason
                self._sleep(pause_s)
                elapsed_s += pause_s
                wait.attempt += 1

    def _call(self, method: str, deadline_s: float, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        filesystem = self._filesystem
        if filesystem.async_impl:
            function = getattr(filesystem, f"_{method}")
            return sync(filesystem.loop, _within, deadline_s, function, arguments, options)
        return getattr(filesystem, method)(*arguments, **options)


def _nothing() -> None:
    """Let changes be made."""


async def _within(
    deadline_s: float, function: Callable[..., Awaitable[T]], arguments: tuple[Any, ...], options: dict[str, Any]
) -> T:
    async with asyncio.timeout(deadline_s):
        return await function(*arguments, **options)


def _is_refusal(error: Exception) -> bool:
    """Whether a retry is useless."""
    status, code = _answer(error)
    if code in _PASSING_CODES:
        return False
    if status in _REFUSED and status not in _PASSING_STATUSES:
        return True
    return isinstance(error, _NEVER) or _REFUSALS.search(type(error).__name__) is not None


def _answer(error: BaseException) -> tuple[int | None, str]:
    """Return the HTTP status of an error and the store's own error code; ``None`` and ``""`` without one.

    Clients keep them in attributes: botocore in ``response`` (of the cause of s3fs's error), gcsfs in ``code``, aiohttp
    in ``status``.
    """
    cause: BaseException | None = error
    for _ in range(_CAUSES):
        if cause is None:
            break
        response = getattr(cause, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            code = response.get("Error", {}).get("Code")
            return (status if isinstance(status, int) else None), str(code or "")
        # Not "code" of any error: aiohttp's own errors for a truncated body have a code of 400.
        status = getattr(cause, "code" if type(cause).__module__.startswith("gcsfs") else "status", None)
        if isinstance(status, int) and status in _STATUSES:
            return status, ""
        cause = cause.__cause__
    return None, ""


def _is_beyond_end(error: Exception) -> bool:
    """Whether a range began beyond an object's last byte."""
    return isinstance(error, OSError) and error.errno == errno.EINVAL and "range" in str(error).lower()


def _reason(error: BaseException) -> str:
    """Return a short reason without secrets; for an error without a text its type."""
    status, code = _answer(error)
    if status is None and isinstance(error, TimeoutError | FSTimeoutError):
        return "no answer in time"
    said = shown_url(str(error).strip()) or type(error).__name__
    if status is None:
        return said
    named = f"HTTP {status} {code}".rstrip() if code != str(status) else f"HTTP {status}"
    return f"{named}: {said}"
