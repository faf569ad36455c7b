"""A home as it is made, checked, claimed and moved."""

from __future__ import annotations

import contextlib
import socket
from typing import TYPE_CHECKING, Final

from chronicle.errors import Conflict, NotFound
from chronicle.journal.places import without_password
from chronicle.system.atomic_files import create_once, is_partial, replacing, sync_directory, sync_file
from chronicle.system.permissions import make_private
from coordinator.home.contents import StoredHome
from coordinator.home.description import Identity, Urls, new_id
from podium.errors import HomeError, HomeNotWritable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chronicle.blobs.media.fsspec_objects import RemoteObjects

__all__ = ["Home"]

_NAMES_BEFORE_FORMAT: Final = frozenset({"blobs", "nodes", "logs", "id"})
"""What may exist before the format file: during creation, or after a crash in it."""
_MOVED: Final = ("journal.db*", "access.db*", "models.db*", "models.json", "quarantine.json", "drained.json", "blobs")
"""What a home has elsewhere after it was moved."""


class Home(StoredHome):
    """A home directory. The constructor does no I/O.

    Args:
        path: the directory.
    """

    def create(
        self, blobs_url: str = "", journal_url: str = "", identify: Callable[[str, Identity], Identity] | None = None
    ) -> Home:
        """Create the directory if it does not exist, and check that it is usable and writable.

        Args:
            blobs_url: where a new home stores its blobs, such as ``s3://bucket/prefix``; in the home if empty.
            journal_url: where a new home keeps its journal, such as ``postgresql://user@host/database``; in the home
                if empty. If a home is there, this becomes another directory of it.
            identify: gives the database at the URL a home unless it has one, and returns which it has; needed for a
                new home with a journal at a URL (`coordinator.homes.opening.create_home`).

        Raises:
            HomeNotWritable: no permission, a file in the way, a read-only or full disk.
            HomeError: the directory contains something else, or a home with other URLs, or another home than the
                database; or a URL is claimed by another home.
            InvalidInput: a URL cannot be used; see `chronicle.blobs.media.medium_check` and
                `chronicle.journal.opening`.
            Unavailable: a URL cannot be reached.
            HomeTooNew: a newer version wrote it.
        """
        asked = Urls(blobs_url.rstrip("/"), without_password(journal_url.rstrip("/")))
        with self._writing():
            make_private(self.path)
            there = [] if self._format_path.exists() else self._foreign_names()
            if there and not self._format_path.exists():  # else another process created the home meanwhile
                raise HomeError(
                    f"{self.path} is not a podium home and not empty (it has {there[0]!r}); give an empty or new "
                    "directory with --home"
                )
            for part in ("blobs", "nodes", "logs"):
                make_private(self.path / part)
            if not self._format_path.exists():
                if asked.journal:
                    assert identify is not None, "a new home with a journal at a URL has to be identified"
                    asked = self._join(asked, identify(journal_url, self._proposed(asked)))
                elif asked.blobs:
                    self.claim(asked.blobs, f"{socket.gethostname()}:{self.path}")
                create_once(self._format_path, asked.described)
            # No id: the home is new, of an older version, or a copy whose id was removed to make it distinct.
            if not self._id_path.exists():
                create_once(self._id_path, f"{new_id()}\n")
            with self._lock_path.open("a"):
                pass
        opened = self.open()
        self._check_urls(blobs_url.rstrip("/"), asked.journal)
        return opened

    def _check_urls(self, blobs_url: str, journal_url: str) -> None:
        """Raise if the home has other URLs than those that were asked for."""
        had = self._urls_read
        for asked, url, what in ((journal_url, had.journal, "journal"), (blobs_url, had.blobs, "blobs")):
            if asked and asked != url:
                from chronicle.blobs.media.objects import shown_url  # noqa: PLC0415  for this message only

                place = f"at {url}" if url else "in its own directory"
                raise HomeError(
                    f"the home {self.path} keeps its {what} {place}, not at {shown_url(asked)}; give a new home with "
                    f"--home, move this one (podium migrate), or unset PODIUM_{what.upper()}_URL, or {what} in "
                    "podium.toml"
                )

    def _proposed(self, asked: Urls) -> Identity:
        """Return the identity for a database that has no home yet."""
        return Identity(self.id if self._id_path.exists() else new_id(), asked.blobs)

    def _join(self, asked: Urls, found: Identity) -> Urls:
        """Make this a directory of the home that a database has; return its URLs."""
        create_once(self._id_path, f"{found.home_id}\n")
        if self.id != found.home_id:
            raise HomeError(
                f"{asked.journal} has the home {found.home_id}, and {self.path} is a directory of {self.id}; give "
                "another URL, or another directory with --home"
            )
        self.claim(found.blobs, found.home_id)
        return Urls(found.blobs, asked.journal)

    def take_id(self, home_id: str) -> None:
        """Give a directory that is to be a home, such as a copy, the id of another one; durable on return.

        Raises:
            HomeNotWritable: the directory cannot be written.
        """
        with self._writing():
            create_once(self._id_path, f"{home_id}\n")

    def complete_copy(self) -> None:
        """Make a directory that has a copy of a home's journal and blobs, and its id, a home; durable on return.

        Raises:
            HomeNotWritable: the directory cannot be written.
        """
        with self._writing():
            for part in ("blobs", "nodes", "logs"):
                make_private(self.path / part)
            with self._lock_path.open("a"):
                pass
            create_once(self._format_path, Urls().described)
        self.open()

    def move_to(self, blobs_url: str, journal_url: str) -> None:
        """Have the journal and the blobs elsewhere from now on; durable on return.

        Args:
            blobs_url: where the blobs are.
            journal_url: where the journal is.

        Raises:
            HomeNotWritable: the directory cannot be written.
        """
        with self._writing():
            with replacing(self._format_path) as new:
                new.write_text(Urls(blobs_url, without_password(journal_url)).described, encoding="utf-8")
                sync_file(new)
            sync_directory(self.path)
        self._urls = None
        self.open()

    def set_moved_aside(self) -> None:
        """Set aside what a home that was moved had in its directory, in ``moved/``; durable on return, and idempotent.

        Raises:
            HomeNotWritable: the directory cannot be written.
        """
        aside = self.path / "moved"
        with self._writing():
            make_private(aside)
            for pattern in _MOVED:
                for found in self.path.glob(pattern):
                    if not (aside / found.name).exists():  # else it is the empty directory that has taken its place
                        found.rename(aside / found.name)
            make_private(self.path / "blobs")
            sync_directory(aside)
            sync_directory(self.path)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise HomeNotWritable(
                f"the home {self.path} cannot be written ({error.strerror}); give another one with --home, or fix its "
                "owner and permissions"
            ) from error

    def _foreign_names(self) -> list[str]:
        """Return the names of entries that no home without a format file has."""
        return sorted({found.name for found in self.path.iterdir() if not is_partial(found)} - _NAMES_BEFORE_FORMAT)

    def claim(self, blobs_url: str, mine: str) -> None:
        """Claim a URL for this home.

        Garbage collection deletes the blobs at the URL that no turn of this home reaches, so homes cannot share one.

        Args:
            blobs_url: the URL of an object store.
            mine: the name of the home.

        Raises:
            HomeError: it is claimed by another home, or not that of an object store.
            InvalidInput: the store cannot be used; see `chronicle.blobs.media.medium_check`.
            Unavailable: it cannot be reached.
        """
        from chronicle.blobs.media.medium_check import check_medium  # noqa: PLC0415  for URLs only
        from chronicle.clock import SystemClock  # noqa: PLC0415

        objects = _store_at(blobs_url)
        check_medium(objects, SystemClock())
        try:
            objects.create("home", f"{mine}\n".encode())
        except Conflict:
            if self._urls_read.blobs != blobs_url:
                self.check_claim(blobs_url, mine)
            objects.delete("home")  # this directory has claimed it by another name
            objects.create("home", f"{mine}\n".encode())

    def check_claim(self, blobs_url: str, mine: str) -> None:
        """Check that a URL can be used, and is not claimed by another home.

        Args:
            blobs_url: the URL of an object store.
            mine: the name of the home.

        Raises:
            HomeError: it is, or it is not that of an object store.
            InvalidInput, Unavailable: as `claim`.
        """
        from chronicle.blobs.media.medium_check import check_medium  # noqa: PLC0415  for URLs only
        from chronicle.blobs.media.objects import shown_url  # noqa: PLC0415
        from chronicle.clock import SystemClock  # noqa: PLC0415

        objects = _store_at(blobs_url)
        check_medium(objects, SystemClock())
        try:
            other = objects.read("home").decode(errors="replace").strip()
        except NotFound:
            return
        if other != mine:
            raise HomeError(f"{shown_url(blobs_url)} keeps the blobs of another home, {other}; give another URL")


def _store_at(blobs_url: str) -> RemoteObjects:
    """Return an object store.

    Raises:
        HomeError: the URL is not that of one.
        InvalidInput, Unavailable: it cannot be used, or not be reached.
    """
    protocol, separator, _ = blobs_url.partition("://")
    if not separator or protocol == "file":
        raise HomeError(
            f"{blobs_url!r} is not the URL of an object store; without one a home keeps its blobs in its own directory"
        )
    from chronicle.blobs.media.fsspec_objects import open_remote  # noqa: PLC0415  for URLs only

    return open_remote(blobs_url)
