"""Routes of links: making one, and what its holder sees and answers without a key.

The token of a link is in the header of a request, and in the fragment of the page's URL: no log has it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Final, TypeAlias

import structlog
from fastapi import Depends, Path
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from chronicle.errors import ChronicleError
from coordinator.access.administration import KeyAdministration
from coordinator.access.caller import Access, Caller, Scope
from coordinator.access.lifetimes import DEFAULT_LINK_S, LONGEST_LINK_S
from coordinator.gateway.bodies import AnswerBody
from coordinator.gateway.dependencies import Agents, Called, HomesAgents, noting
from coordinator.gateway.documents import statuses
from coordinator.gateway.routers import router_at
from coordinator.gateway.routes.keys import NOT_REPEATED, Administration, Client
from coordinator.operations.links import make_link
from coordinator.operations.objects import LinkAnswered, LinkedQuestion, RunLink

__all__ = ["router"]

router = router_at("/v1", "runs")
_log: Final = structlog.stdlib.get_logger("coordinator.gateway")


class NewLink(BaseModel):
    """A link to create."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    promise: Annotated[str, Field(max_length=100)] | None = None
    """The name of the promise that it answers; by default what is open."""
    expires_in_s: int = Field(default=DEFAULT_LINK_S, ge=1, le=LONGEST_LINK_S)
    """It ends with the question at the latest."""


@router.post("/runs/{run_id}/links", status_code=201, responses=statuses(404, 409), dependencies=NOT_REPEATED)
async def create_link(
    agents: Agents,
    caller: Called,
    keys: Administration,
    client: Client,
    run_id: Annotated[str, Path(max_length=64, description="The id of the run: that of its message, `msg_…`.")],
    new: NewLink,
) -> RunLink:
    """Create a link by which whoever has it answers, once, what the run waits for now, and nothing else.

    It ends with the key that makes it. It needs the scope `answer`.
    """
    caller.require(Scope.ANSWER, caller.agent)
    caller.require(Scope.ANSWER, await agents.agent_of_run(run_id, tenant=caller.tenant))
    address, question = await agents.question(run_id, promise=new.promise, tenant=caller.tenant)
    return await make_link(keys, caller, client, address, question, new.expires_in_s)


async def _holder(request: Request, _: Administration) -> Caller:
    access: Access = request.app.state.access
    holder = await access.authenticate_link(request.headers.get("authorization"))
    holder.require(Scope.ANSWER, holder.agent)  # the key that made it may have lost that
    request.state.caller, request.state.error_texts = holder, False
    return holder


Holder: TypeAlias = Annotated[Caller, Depends(_holder)]
"""Who has a link."""


async def _noted(request: Request, holder: Holder) -> AsyncIterator[None]:
    with noting(request, holder):
        yield


@router.get("/answer", responses=statuses(404, 409))
async def get_question(agents: HomesAgents, holder: Holder) -> LinkedQuestion:
    """Return what the holder of a link is asked. The key of the request is the token of the link, and nothing else."""
    _, question = await agents.question(*_run(holder), request=_request(holder), tenant=holder.tenant)
    return LinkedQuestion(
        kind=question.kind,
        promise=question.promise,
        reason=question.reason,
        schema=question.schema,
        expires=question.expires_ms,
    )


@router.post("/answer", responses=statuses(404, 409, 413), dependencies=[Depends(_noted)])
async def answer_question(agents: HomesAgents, holder: Holder, keys: Administration, body: AnswerBody) -> LinkAnswered:
    """Answer by a link, once; the run goes on. The key of the request is the token of the link, and nothing else.

    An answer that does not fit is refused with 400 `invalid_decision`, and may be sent again.
    """
    await agents.decide(
        *_run(holder),
        body.answer,
        rejection=body.rejection,
        request=_request(holder),
        by=holder.key_id,
        tenant=holder.tenant,
    )
    await _spend(keys, holder)
    return LinkAnswered(outcome="answered" if body.rejection is None else "rejected")


async def _spend(keys: KeyAdministration, holder: Caller) -> None:
    try:
        await keys.spend_link(holder)
    except ChronicleError as error:  # its question is answered, so it is of no use
        _log.info("link_not_removed", key_id=holder.key_id, error=str(error))


def _run(holder: Caller) -> tuple[str]:
    return (str(holder.claims["run"]),)


def _request(holder: Caller) -> str:
    return str(holder.claims["request"])
