"""The home that a command is for, on this machine or at a URL: the command has one body, over a client of either."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from chronicle.errors import ChronicleError
from podium.errors import InvalidAddress, PodiumError, UnknownAgent, UnknownMoment

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from contextlib import AbstractContextManager
    from pathlib import Path

    from coordinator.client.async_client import AsyncPodium

__all__ = ["Moment", "Target", "moment_of"]

_T = TypeVar("_T")
_QUIET_S: Final = 1.0
"""A command that takes longer says what it waits for."""
_TURN: Final = re.compile(r"[+-]?[0-9]+")
_MAX_NAMES: Final = 1000
"""Limit of agents that are compared with an unknown one for a suggestion."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An agent, and one of its turns; ``None`` for the last one."""

    agent: str
    turn: int | None


@dataclass(frozen=True, slots=True)
class Target:
    """The home of a command.

    Attributes:
        home: its directory, which counts without a URL.
        url: that of its gateway; empty for a home on this machine.
        key: the API key for the URL; empty for the client's default.
        json: whether the command is to write JSON.
    """

    home: Path
    url: str
    key: str
    json: bool

    def client(self) -> AsyncPodium:
        """Return a client of the home."""
        from coordinator.client.async_client import AsyncPodium  # noqa: PLC0415  slow to import, and --help needs none

        return AsyncPodium(url=self.url, key=self.key or None) if self.url else AsyncPodium(home=self.home)

    def gateway_url(self) -> str:
        """Return the URL of the home's gateway; empty if none runs on this machine."""
        from coordinator.gateway_record import read_record  # noqa: PLC0415
        from coordinator.home import Home  # noqa: PLC0415

        if self.url:
            return self.url.rstrip("/")
        record = read_record(Home(self.home))
        return record.url.rstrip("/") if record is not None else ""

    def has_service(self) -> bool:
        """Return whether a service runs for the home, on whichever machine; one behind a gateway does."""
        from coordinator.home import Home  # noqa: PLC0415

        home = Home(self.home)
        if self.url or home.service_alive():
            return True
        if not home.is_shared:
            return False
        from coordinator.service.connecting import serves_elsewhere  # noqa: PLC0415

        return serves_elsewhere(home)

    def ask(
        self,
        doing: str,
        call: Callable[[AsyncPodium], Awaitable[_T]],
        *agents: str,
        writes: bool = False,
        waits: bool = False,
    ) -> _T:
        """Return the result of calls to a client of the home.

        Args:
            doing: what is shown if the calls take longer than a second.
            agents: agents that the calls name, or moments of them; the error for one that does not exist names the most
                similar ones.
            writes: whether the calls change the home; one on this machine is not opened for writing otherwise.
            waits: whether they wait for a turn to end: that is shown in a pipe, too.

        Raises:
            ClientError: a gateway refused the call, or could not be reached.
            PodiumError, ChronicleError: a home on this machine refused it.
        """
        with self._opened(writes=writes):
            return self.run(lambda podium: self._asked(podium, doing, call, agents, waits=waits))

    def run(self, call: Callable[[AsyncPodium], Coroutine[Any, Any, _T]]) -> _T:
        """Return the result of calls to a client of the home, which may take as long as they like.

        Raises:
            ClientError, PodiumError, ChronicleError: as `ask`.
        """
        import asyncio  # noqa: PLC0415  slow to import, and --help needs none

        async def run() -> _T:
            async with self.client() as podium:
                return await call(podium)

        try:
            return asyncio.run(run())
        except PodiumError as error:
            found = self._found(error)
        raise found

    def confirm(self, agent: str, question: str, doing: str) -> None:
        """Return if the agent exists, and the user says that it is to be changed permanently; see `confirm`.

        Args:
            question: the operation as an order.
            doing: the operation as a noun.
        """
        from chronicle.cli_kit.confirmation import confirm  # noqa: PLC0415

        self.ask(f"asking for {agent}", lambda podium: podium.agent(agent), agent)
        place = f" at {self.url}" if self.url else ""
        confirm(f"{question}{place} permanently?", without_terminal=f"{doing} cannot be undone; add --yes to do it")

    async def _asked(
        self,
        podium: AsyncPodium,
        doing: str,
        call: Callable[[AsyncPodium], Awaitable[_T]],
        agents: tuple[str, ...],
        *,
        waits: bool,
    ) -> _T:
        from podium.address import Address  # noqa: PLC0415

        for agent in agents:
            try:
                Address.parse(agent)
            except InvalidAddress as error:
                raise await self._unknown(podium, f"no agent {agent} in this home", agent) from error
        try:
            return await _with_progress(doing, call(podium), lines=waits)
        except PodiumError as error:
            found = self._found(error)
            if agents:
                vars(found).setdefault("agent", _without_turn(agents[0]))  # for its hint
            if agents and (isinstance(found, UnknownAgent) or getattr(found, "kind", "") == UnknownAgent.__name__):
                named = next((name for name in map(_without_turn, agents) if name in str(found)), agents[0])
                raise await self._unknown(podium, str(found), named) from error
            raise

    def _found(self, error: PodiumError) -> Exception:
        """Return the error of a home on this machine that a client's error was made of, else the error itself."""
        from coordinator.client.errors import ClientError  # noqa: PLC0415

        cause = error.__cause__ if isinstance(error, ClientError) and not self.url else None
        return cause if isinstance(cause, PodiumError | ChronicleError) else error

    async def _unknown(self, podium: AsyncPodium, problem: str, name: str) -> UnknownAgent:
        """Return the error for an agent that does not exist, with the names of similar ones, if the home tells them."""
        from coordinator.cli.lookup import unknown_agent  # noqa: PLC0415  slow to import, and needed for an error only
        from coordinator.client.errors import ClientError  # noqa: PLC0415

        try:
            page = await podium.pages().agents(limit=_MAX_NAMES, tenant=self.tenants)
        except ClientError:
            return UnknownAgent(problem)
        return unknown_agent(problem, name, [agent.agent for agent in page.items])

    @property
    def tenants(self) -> str | None:
        """The tenants whose agents are listed by default: of a home on this machine all, else the key's."""
        from podium.address import ALL_TENANTS  # noqa: PLC0415

        return None if self.url else ALL_TENANTS

    def _opened(self, *, writes: bool) -> AbstractContextManager[object]:
        """Hold the journal of a home on this machine open: it is migrated, or checked for damage."""
        from coordinator.cli.stores import opened_journal, read_journal  # noqa: PLC0415

        if self.url:
            return nullcontext()
        return opened_journal(self.home) if writes else read_journal(self.home)


async def moment_of(podium: AsyncPodium, text: str) -> Moment:
    """Parse ``AGENT`` or ``AGENT@TURN``. An agent with the whole text as its address takes precedence.

    Raises:
        UnknownMoment: the turn is negative.
    """
    from coordinator.client.errors import ResourceNotFound  # noqa: PLC0415

    name, turn = _parts(text)
    if turn is not None:
        try:
            await podium.agent(text)
        except ResourceNotFound:
            if turn < 0:
                raise UnknownMoment(
                    f"turns count from 0, the agent's creation; there is no turn {turn} of {name}"
                ) from None
            return Moment(name, turn)
    return Moment(text, None)


def _parts(text: str) -> tuple[str, int | None]:
    name, at, turn = text.rpartition("@")
    return (name, int(turn)) if at and _TURN.fullmatch(turn) else (text, None)


def _without_turn(text: str) -> str:
    return _parts(text)[0]


async def _with_progress(doing: str, call: Awaitable[_T], *, lines: bool) -> _T:
    import asyncio  # noqa: PLC0415

    from chronicle.cli_kit.progress import Progress  # noqa: PLC0415
    from podium.tasks import beside  # noqa: PLC0415

    with beside(call) as task:
        done, _ = await asyncio.wait((task,), timeout=_QUIET_S)
        if done or not doing:
            return await task
        with Progress(lines=lines) as progress:
            progress.show(doing)
            return await task
