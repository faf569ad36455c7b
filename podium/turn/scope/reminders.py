"""Changes of a hook to the agent's reminders, which are made by the turn's commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.journal.records import DropReminder, SetReminder
from podium.errors import ContextMisuse
from podium.reminders.delayed import delayed_name
from podium.reminders.expiries import of_program
from podium.turn.steps.effects import current_step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chronicle.journal.records import Reminder
    from podium.reminders.setting import Setter
    from podium.turn.scope.open_turn import RunningHook

__all__ = ["Reminders"]


class Reminders:
    """The agent's reminders, as one hook sees and changes them."""

    def __init__(self, hook: RunningHook) -> None:
        self._hook = hook
        self._turn = hook.turn

    def setter(self) -> Setter:
        """Return who sets a reminder now.

        ``at`` is in the past before the admission of the message that is handled; before now, without a message.
        """
        from podium.reminders.setting import Setter  # noqa: PLC0415  the library of cron lines

        now_ms, message = self._turn.env.clock.now_ms(), self._hook.message
        since_ms = min(now_ms, message.admitted_ms) if message is not None else now_ms
        return Setter(self._turn.address, self._hook.sent_caller, now_ms, since_ms)

    def change(self, change: SetReminder | DropReminder) -> None:
        """Add a change of a reminder to the turn; it replaces an earlier one of the same name.

        Raises:
            PodiumError: the turn is over, or a step runs.
        """
        self._turn.check_open()
        if current_step() is not None:
            raise ContextMisuse(
                "a step cannot change reminders, as it is not run again: do it before or after ctx.step"
            )
        self._turn.reminders.pop(change.name, None)
        self._turn.reminders[change.name] = change

    async def cancel(self, name: str) -> bool:
        """Cancel a reminder by its name, or a delayed message by its id; return whether there was one.

        Raises:
            PodiumError: the turn is over, or a step runs.
        """
        told = self._turn.delayed
        stored = await self._stored()
        known = [each for each in (name, delayed_name(name)) if each in stored]
        for each in known or [name]:
            self.change(DropReminder(each))
        kept = [each for each in told if each.message_id != name]
        was_told = len(kept) < len(told)
        told[:] = kept
        return bool(known) or was_told

    async def list(self) -> Sequence[Reminder | SetReminder]:
        """Return the agent's reminders by name, as the turn leaves them.

        Raises:
            PodiumError: the turn is over.
        """
        found = await self._stored()
        return of_program([found[name] for name in sorted(found)])

    async def _stored(self) -> Mapping[str, Reminder | SetReminder]:
        """Return what the journal has by name, with the changes of the turn."""
        self._turn.check_open()
        found: dict[str, Reminder | SetReminder] = {each.name: each for each in await self._turn.stored_reminders()}
        for name, change in self._turn.reminders.items():
            if isinstance(change, SetReminder):
                found[name] = change
            else:
                found.pop(name, None)
        return found
