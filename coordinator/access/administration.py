"""`KeyAdministration`: what a caller may do with keys, and the record of it.

A caller with the scope ``admin`` administers the keys of its tenant; the operator (`Caller.is_operator`), those of all.
"""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Final

from chronicle.errors import InvalidInput
from coordinator.access.caller import NotPermitted, Scope, with_implied
from coordinator.access.lifetimes import LONGEST_LINK_S, LONGEST_TOKEN_S
from coordinator.access.views import key_object
from podium.address import Address, check_tenant

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from chronicle.canonical import JsonObject
    from chronicle.clock import Clock
    from coordinator.access.audit import Audit
    from coordinator.access.caller import Caller
    from coordinator.access.keys import Key
    from coordinator.access.records import KeyRecords
    from coordinator.access.views import CreatedKey, KeyList, KeyObject, TokenObject
    from podium.messages.answers import Question

__all__ = ["KeyAdministration"]


_OF_TOKENS: Final = frozenset({Scope.READ, Scope.ANSWER, Scope.WRITE})


class KeyAdministration:
    """The keys of a home, for callers.

    Args:
        keys: the store; the caller closes it.
        audit: the record of what is done.
        clock: the time.
    """

    def __init__(self, keys: KeyRecords, audit: Audit, clock: Clock) -> None:
        self._keys = keys
        self._audit = audit
        self._clock = clock

    async def create(
        self,
        caller: Caller,
        client: str | None,
        name: str,
        scopes: Sequence[Scope],
        tenant: str | None,
        expires_in_s: int | None,
    ) -> CreatedKey:
        """Create a key.

        Args:
            client: the address of the caller, for the record.
            tenant: the caller's if ``None``.
            expires_in_s: ``None``: it does not expire.

        Raises:
            NotPermitted: the caller may not administer that tenant's keys.
            InvalidAddress: the tenant's name cannot be used.
        """
        whose = tenant if tenant is not None else caller.tenant
        now_ms = self._clock.now_ms()
        with self._noted(caller, client, "key.create", whose) as noted:
            self._require(caller, whose)
            check_tenant(whose)
            expires_ms = now_ms + expires_in_s * 1000 if expires_in_s is not None else None
            key, text = await asyncio.to_thread(
                self._keys.create, name, whose, scopes, now_ms, expires_ms=expires_ms, made_by=caller.key_id
            )
            noted["key_id"] = key.key_id
        return {**key_object(key), "key": text}

    async def keys(self, caller: Caller, tenant: str | None) -> KeyList:
        """Return the keys of a tenant; of all for the operator, of the caller's for others, if ``None``.

        Raises:
            NotPermitted: the caller may not administer that tenant's keys.
        """
        self._require(caller, tenant if tenant is not None else caller.tenant)
        whose = None if caller.is_operator and tenant is None else tenant or caller.tenant
        return {"items": [key_object(key) for key in await asyncio.to_thread(self._keys.listed, whose)]}

    async def revoke(self, caller: Caller, client: str | None, key_id: str) -> KeyObject:
        """Revoke a key.

        Raises:
            NotPermitted: the caller may not administer keys.
            NotFound: there is no such key among those that it administers.
        """
        with self._noted(caller, client, "key.revoke", caller.tenant, key_id):
            whose = self._administered(caller)
            return key_object(await asyncio.to_thread(self._keys.revoke, key_id, whose))

    async def rotate(self, caller: Caller, client: str | None, key_id: str) -> CreatedKey:
        """Give a key a new text; the old one ends at once.

        Raises:
            NotPermitted: the caller may not administer keys.
            NotFound: there is no such key among those that it administers.
        """
        with self._noted(caller, client, "key.rotate", caller.tenant, key_id):
            whose = self._administered(caller)
            key, text = await asyncio.to_thread(self._keys.rotate, key_id, whose)
        return {**key_object(key), "key": text}

    async def create_token(
        self,
        caller: Caller,
        client: str | None,
        agent: Address,
        scopes: Sequence[Scope],
        expires_in_s: int,
        claims: JsonObject | None = None,
    ) -> TokenObject:
        """Create a token for one agent of the caller's tenant, which need not exist yet. It ends with the caller's key.

        Args:
            claims: what agents are told of who has it.

        Raises:
            NotPermitted: the caller may not administer keys, or the agent is of another tenant.
            InvalidInput: the token would have other scopes than ``read``, ``answer`` and ``write``, or live
                for longer than a day; or its claims are too large.
        """
        now_ms = self._clock.now_ms()
        with self._noted(caller, client, "token.create", caller.tenant, agent=str(agent)) as noted:
            self._require(caller, caller.tenant)
            caller.require(Scope.ADMIN, agent)
            if not _OF_TOKENS.issuperset(scopes) or not scopes or not 0 < expires_in_s <= LONGEST_TOKEN_S:
                raise InvalidInput(
                    f"a token has the scopes read, answer or write, and lives for 1 to {LONGEST_TOKEN_S} seconds"
                )
            expires_ms = now_ms + expires_in_s * 1000
            token, text = await asyncio.to_thread(
                self._keys.create,
                str(agent),
                caller.tenant,
                scopes,
                now_ms,
                expires_ms=expires_ms,
                agent=agent,
                made_by=caller.key_id,
                claims=claims,
            )
            noted["key_id"] = token.key_id
        permitted = [scope for scope in ("read", "answer", "write") if Scope(scope) in with_implied(scopes)]
        return {
            "token": text,
            "token_id": token.key_id,
            "agent": agent.name,
            "scopes": permitted,  # type: ignore[typeddict-item]
            "claims": claims or {},
            "expires_at": token.expires_ms,  # type: ignore[typeddict-item]
        }

    async def create_link(
        self, caller: Caller, client: str | None, agent: Address, question: Question, expires_in_s: int
    ) -> tuple[Key, str]:
        """Create a link that answers a question of an agent. It ends with the caller's key, and with the question.

        Returns:
            what is recorded, and the text, which is shown once.

        Raises:
            NotPermitted: the caller may not answer.
            InvalidInput: the link would live for longer than 30 days.
        """
        now_ms = self._clock.now_ms()
        with self._noted(caller, client, "link.create", caller.tenant, agent=str(agent)) as noted:
            caller.require(Scope.ANSWER, agent)
            if not 0 < expires_in_s <= LONGEST_LINK_S:
                raise InvalidInput(f"a link lives for 1 to {LONGEST_LINK_S} seconds")
            expires_ms = min(now_ms + expires_in_s * 1000, question.expires_ms or sys.maxsize)
            link, text = await asyncio.to_thread(
                self._keys.create,
                question.run_id,
                caller.tenant,
                [Scope.ANSWER],
                now_ms,
                expires_ms=expires_ms,
                agent=agent,
                made_by=caller.key_id,
                claims={"run": question.run_id, "request": question.request},
                link=True,
            )
            noted["key_id"] = link.key_id
        return link, text

    async def spend_link(self, link: Caller) -> None:
        """Remove a link that has answered its question.

        Raises:
            NotFound: it is gone.
        """
        await asyncio.to_thread(self._keys.revoke, link.key_id or "", link.tenant)

    def _administered(self, caller: Caller) -> str | None:
        """Return the tenant whose keys a caller administers; ``None`` for those of all."""
        self._require(caller, caller.tenant)
        return None if caller.is_operator else caller.tenant

    def _require(self, caller: Caller, tenant: str) -> None:
        caller.require(Scope.ADMIN)
        if tenant != caller.tenant and not caller.is_operator:
            raise NotPermitted(f"this key administers the keys of the tenant {caller.tenant} only")

    def _noted(
        self,
        caller: Caller,
        client: str | None,
        what: str,
        tenant: str,
        key_id: str | None = None,
        agent: str | None = None,
    ) -> AbstractContextManager[dict[str, str | int | None]]:
        return self._audit.noting(caller.key_id, what, tenant=tenant, agent=agent, client=client, key_id=key_id)
