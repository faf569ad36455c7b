"""The ports to what is kept of keys and quotas. The contract in code is ``tests/contract/home_records.py``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chronicle.canonical import JsonObject
    from coordinator.access.caller import Scope
    from coordinator.access.keys import Key
    from coordinator.access.quotas import Quota
    from podium.address import Address

__all__ = ["KeyRecords", "QuotaRecords"]


class QuotaRecords(Protocol):
    """The quotas of tenants. Safe to share between threads; any process of the home may use them.

    Methods raise `StorageRefused` if they cannot be read or written, `Corrupt` if they are damaged.
    """

    def set_quotas(self, quotas: Mapping[str, Quota]) -> None:
        """Replace the quotas of all tenants; in force at once."""
        ...

    def quotas(self) -> dict[str, Quota]:
        """Return the quotas by tenant."""
        ...

    def changes(self) -> int:
        """Return a number that changes with what is kept, in this process or another one; each request asks for it.

        Uses that this process records do not count.
        """
        ...

    def close(self) -> None:
        """Release files and connections."""
        ...


class KeyRecords(QuotaRecords, Protocol):
    """The keys and tokens of a home, and its quotas. A key is durable when its text is returned.

    Reading waits for no writer: each request reads its key.
    """

    @property
    def is_far(self) -> bool:
        """Whether a call may wait for a network: it is for threads then, and not for an event loop."""
        ...

    @property
    def tag(self) -> str:
        """The characters that the home's keys have after their prefix."""
        ...

    def create(
        self,
        name: str,
        tenant: str,
        scopes: Iterable[Scope],
        now_ms: int,
        *,
        expires_ms: int | None = None,
        agent: Address | None = None,
        made_by: str | None = None,
        claims: JsonObject | None = None,
        link: bool = False,
    ) -> tuple[Key, str]:
        """Create a key, or with ``agent`` a token for that agent, which expires with the key that makes it.

        Args:
            link: a link in place of a token.
            claims: of a token; its text has them, and they are not kept.

        Returns:
            what is recorded, and the text, which cannot be had again.

        Raises:
            UnknownKey: the key ``made_by`` was revoked.
            InvalidInput: the claims are no JSON, or too large.
        """
        ...

    def listed(self, tenant: str | None = None) -> list[Key]:
        """Return the keys, not the tokens, of a tenant, of all if ``None``, oldest first."""
        ...

    def find(self, text: str) -> Key | None:
        """Return the key or token with a text, expired or not; ``None`` if there is none.

        A token has no scope that the key which made it does not have any more; a link none that a token, or the key
        which made that, has lost.
        """
        ...

    def find_digest(self, digest: bytes) -> Key | None:
        """Return the key or token whose text has a digest; see `find`."""
        ...

    def revoke(self, key_id: str, tenant: str | None = None) -> Key:
        """Remove a key, with the tokens and links that it made, or a link, and return what it was.

        Args:
            tenant: only if it is of this one.

        Raises:
            NotFound: there is no such key.
        """
        ...

    def rotate(self, key_id: str, tenant: str | None = None) -> tuple[Key, str]:
        """Give a key a new text; the old one, and the tokens that it made, end at once.

        Raises:
            NotFound: there is no such key.
        """
        ...

    def note_use(self, key_id: str, now_ms: int) -> None:
        """Record that a key is used, not durably; not at all while another process writes."""
        ...
