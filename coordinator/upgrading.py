"""Upgrading a home: the formats of its parts, and their migrations to those of this version.

A migration is additive if versions that know the older format only can use the newer one: it needs nothing but the
lock under which each schema is changed. Any other one is made while nothing else uses the home: no service, of any
directory, and no gateway of this one.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

from chronicle.errors import NotFound, OlderFormat
from chronicle.journal.opening import open_journal
from chronicle.journal.places import without_password
from coordinator.gateway_record import check_no_gateway
from coordinator.homes.opening import open_records
from coordinator.homes.records import Part
from podium.errors import HomeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from coordinator.home import Home

__all__ = ["parts_of", "upgrade_home"]


def parts_of(home: Home) -> list[Part]:
    """Return the parts of a home with their formats; nothing is written.

    Raises:
        UnsupportedFormat, HomeTooNew: a newer version wrote one of them.
        Corrupt, StorageRefused, Unavailable: one cannot be read.
    """
    return [Part("directory", str(home.path), home.format), *_journal(home), *open_records(home).parts()]


def upgrade_home(home: Home) -> None:
    """Migrate the parts that are older; durable on return.

    Raises:
        GatewayRuns: a gateway of the home runs, and the upgrade is not additive.
        HomeError: a service has the home, and the upgrade is not additive.
        UnsupportedFormat: a newer version wrote a part.
        Corrupt, StorageRefused, Unavailable: a part cannot be read or written.
    """
    with _alone_once(home) as alone:
        if _journal(home):
            open_journal(home.journal_url, create=False, watched=True, may_migrate=alone).close()
        open_records(home).upgrade(alone)


def _journal(home: Home) -> list[Part]:
    place = without_password(home.journal_url)
    try:
        with closing(open_journal(home.journal_url, create=False, read_only=True, watched=True)) as store:
            return [Part("journal", place, store.format)]
    except OlderFormat as older:
        return [Part("journal", place, older.found, older.newer, is_additive=older.is_additive)]
    except NotFound:
        if home.is_shared:
            raise
        return []  # no agent has run yet


@contextmanager
def _alone_once(home: Home) -> Iterator[Callable[[], bool]]:
    """Lend a function that has this process alone use the home from its first call on, while the context lasts."""
    with ExitStack() as held:
        is_held = False

        def alone() -> bool:
            nonlocal is_held
            if not is_held:
                check_no_gateway(home)
                if not held.enter_context(home.service_lock()):
                    raise HomeError(f"the service of the home {home.path} runs: end it first (podium down)")
                claim = open_records(home).service_claim()
                claim.hold()
                held.callback(claim.release)
                is_held = True
            return True

        yield alone
