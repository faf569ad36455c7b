"""`HomeAccess`: the keys of a home as a gateway uses them, from its start to its end."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Self

from chronicle.errors import InvalidInput
from coordinator.access.administration import KeyAdministration
from coordinator.access.audit import Audit
from coordinator.access.caller import OpenAccess
from coordinator.access.key_access import KeyAccess
from coordinator.access.local_key import ensure_local_key, read_local_key
from coordinator.access.rates import Rates
from coordinator.homes.opening import open_records

if TYPE_CHECKING:
    from chronicle.clock import Clock
    from coordinator.access.caller import Access
    from coordinator.access.records import KeyRecords
    from coordinator.home import Home

__all__ = ["HomeAccess", "has_keys_for_others"]


class HomeAccess:
    """The access to a home. Use it as an async context manager, which closes it.

    Args:
        home: an existing home.
        clock: the time.
        no_auth: ask for no keys.
        loopback: whether the gateway is reached from this machine only.
        local_key: whether to make a local key if there is none, for this user's programs on this machine.
        key_requests_per_s: requests of one key in the long run; 0 for no limit.

    Raises:
        InvalidInput: other machines would reach it without keys.
        StorageRefused: the keys cannot be read or written.
    """

    def __init__(
        self,
        home: Home,
        clock: Clock,
        *,
        no_auth: bool,
        loopback: bool,
        local_key: bool = True,
        key_requests_per_s: float = 0.0,
    ) -> None:
        self.new_local_key: str | None = None
        """The text of the local key if `make_local_key` made it: to be shown once."""
        self._home = home
        self._clock = clock
        self._makes_local_key = local_key
        self.audit = Audit(home.logs, clock)
        self.keys: KeyRecords | None = None
        self.administration: KeyAdministration | None = None
        """``None`` without keys."""
        self.access: Access = OpenAccess()
        if no_auth:
            if not loopback:
                raise InvalidInput("--no-auth is for loopback only: other machines reach the address of --host")
            return
        self.keys = keys = open_records(home).keys()
        try:
            if not loopback:
                _refuse_without_keys(home, keys)
        except BaseException:
            keys.close()
            raise
        rates = None
        if key_requests_per_s:
            rates = Rates(key_requests_per_s, max(20, round(2 * key_requests_per_s)), clock)
        self.access = KeyAccess(keys, clock, rates)
        self.administration = KeyAdministration(keys, self.audit, clock)

    def make_local_key(self) -> None:
        """Create the local key, if it is to be, and there is none that works: once nothing is refused any more.

        Raises:
            StorageRefused: the keys cannot be written.
            OSError: the file cannot be written.
        """
        if self.keys is not None and self._makes_local_key:
            self.new_local_key = ensure_local_key(self._home.path, self.keys, self._clock.now_ms())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if isinstance(self.access, KeyAccess):
            await self.access.close()
        if self.keys is not None:
            self.keys.close()


def has_keys_for_others(home: Home) -> bool:
    """Return whether somebody has made a key for other machines: the local one is for this machine.

    Raises:
        Unavailable, StorageRefused: the keys cannot be read.
    """
    with closing(open_records(home).keys()) as keys:
        return _has_others(home, keys)


def _has_others(home: Home, keys: KeyRecords) -> bool:
    local = read_local_key(home.path)
    mine = keys.find(local) if local is not None else None
    return not all(mine is not None and key.key_id == mine.key_id for key in keys.listed())


def _refuse_without_keys(home: Home, keys: KeyRecords) -> None:
    """Refuse to serve other machines before somebody has made a key for them."""
    if not _has_others(home, keys):
        raise InvalidInput(
            "other machines reach the address of --host, and there is no key for them yet: make one with "
            "podium keys create NAME, or listen at 127.0.0.1"
        )
