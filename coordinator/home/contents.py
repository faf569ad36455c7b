"""The stores of a home: where its format file says that they are, and how they are opened."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Self

from chronicle.errors import Corrupt, NotFound, OlderFormat, OlderVersionRuns
from chronicle.journal.places import without_password
from chronicle.system.secrets_held import keep_secrets
from coordinator.environment import variables
from coordinator.home.description import FORMAT_WITH_URL, Urls
from coordinator.home.places import HomePlaces
from podium.errors import HomeError, HomeTooNew

if TYPE_CHECKING:
    from pathlib import Path

    from chronicle.blobs.port import BlobStore
    from chronicle.journal.opening import StoredJournal

__all__ = ["StoredHome"]


class StoredHome(HomePlaces):
    """A home with its stores. The constructor does no I/O.

    Args:
        path: the directory.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._urls: Urls | None = None
        """``None`` before the format file is read."""

    def open(self) -> Self:
        """Check that this is a home of a supported format.

        Raises:
            HomeError: it is not a home.
            Corrupt: its description is damaged.
            HomeTooNew: a newer version wrote it.
        """
        try:
            text = self._format_path.read_text(encoding="utf-8")
            described = json.loads(text)
            found = described["format"]
            urls = described.get("blobs", ""), described.get("journal", "")
            self._urls = Urls(*urls)
            is_damaged = text != self._urls.described or not all(isinstance(url, str) for url in urls)
        except FileNotFoundError:
            raise HomeError(
                f"{self.path} is not a podium home; run an agent first (podium run), or give the right --home"
            ) from None
        except OSError as error:
            raise HomeError(
                f"{self._format_path} cannot be read ({error.strerror}); mend its permissions, or take another --home"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError):
            found, is_damaged = None, True
        if isinstance(found, int) and found > FORMAT_WITH_URL:
            raise HomeTooNew(
                f"the home {self.path} has format {found}, this podium reads up to {FORMAT_WITH_URL}: upgrade podium"
            )
        if is_damaged:
            raise Corrupt(
                f"{self._format_path} is damaged: it should hold one line, {Urls().described.strip()} if the home "
                f"keeps all in its directory, {Urls('URL').described.strip()} with the URL if not its blobs, and "
                f"{Urls('URL', 'URL').described.strip()} if not its journal either; write that in it"
            )
        return self

    def journal(self, *, create: bool = True, read_only: bool = False) -> StoredJournal:
        """Open the journal. One of an older format is migrated, but not under a running service of an older version.

        One in a server is migrated here only if older versions can go on using it.

        Args:
            create: create the journal if it does not exist; one in a server exists since the home does.
            read_only: write and create nothing; the home need not be writable.

        Raises:
            HomeError: it does not exist, and ``create`` is false or it is in a server.
            Corrupt: it is missing or damaged.
            OlderVersionRuns: it has an older format, and a service runs: one of this version migrates it at its start.
            HomeError: it is in a server, and has an older format that has to be upgraded first.
        """
        from chronicle.journal.opening import open_journal  # noqa: PLC0415  not every command opens it

        if self.is_shared:
            keep_secrets()
        try:
            return open_journal(
                self.journal_url,
                create=create and not self.is_shared,
                read_only=read_only,
                watched=True,
                may_migrate=lambda: not self.is_shared and (self._is_service or not self.service_alive()),
            )
        except (OlderFormat, OlderVersionRuns) as error:
            if not self.is_shared:
                raise
            raise HomeError(
                f"the home at {without_password(self.journal_url)} has an older format: podium upgrade shows what it "
                "would change there"
            ) from error
        except NotFound as error:
            if self.is_shared:
                raise HomeError(
                    f"the journal of the home at {without_password(self.journal_url)} is missing ({error}): restore it"
                ) from error
            raise HomeError(
                f"no agent has run in the home {self.path} yet: podium run starts one; if one has, its journal.db is "
                "missing: restore it"
            ) from None

    @property
    def _urls_read(self) -> Urls:
        if self._urls is None and self._format_path.exists():  # else it is being made
            self.open()
        return self._urls or Urls()

    @property
    def format(self) -> int:
        """The format of the directory."""
        return self._urls_read.format

    @property
    def journal_url(self) -> str:
        """The journal, as `chronicle.journal.opening.open_journal` takes it.

        ``PODIUM_JOURNAL_URL`` may name the same place with a password, which the home does not keep.
        """
        url = self._urls_read.journal
        named = variables().get("PODIUM_JOURNAL_URL", "")
        return named if url and without_password(named) == url else url or str(self.path / "journal.db")

    @property
    def is_shared(self) -> bool:
        """Whether other directories may be of this home, too, because its journal is in a database server."""
        return bool(self._urls_read.journal)

    @property
    def blobs_url(self) -> str:
        """The blob store, as a URL."""
        return self._urls_read.blobs or f"file://{self.path / 'blobs'}"

    def blobs(self, *, kept: bool = True) -> BlobStore:
        """Open the blob store.

        Args:
            kept: whether this node's cache of a far store may be used.
        """
        from chronicle.blobs.packs.pack_store import PackBlobStore  # noqa: PLC0415  not every command reads blobs

        return PackBlobStore(self.blobs_url, cache="node" if kept else None)
