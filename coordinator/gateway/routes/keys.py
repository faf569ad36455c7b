"""Routes of keys and tokens. They are not there where no keys are used."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from fastapi import Depends, Path, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request

from coordinator.access.administration import KeyAdministration
from coordinator.access.caller import Scope
from coordinator.access.lifetimes import DEFAULT_TOKEN_S, LONGEST_TOKEN_S
from coordinator.access.views import CreatedKey, KeyList, KeyObject, TokenObject
from coordinator.gateway.dependencies import Called
from coordinator.gateway.documents import statuses
from coordinator.gateway.errors import ApiError
from coordinator.gateway.patterns import ADDRESS, TENANT
from coordinator.gateway.routers import router_at
from coordinator.operations.problems import Problem
from podium.address import Address

__all__ = ["NOT_REPEATED", "Administration", "Client", "router"]

router = router_at("/v1", "keys")


class NewKey(BaseModel):
    """A key to create."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=200, description="What it is for.")
    scopes: list[Literal["read", "answer", "write", "metrics", "deploy", "admin"]] = Field(
        default=["read", "write"], min_length=1, max_length=6
    )
    tenant: str | None = Field(
        default=None, max_length=63, description="By default the caller's.", json_schema_extra={"pattern": TENANT}
    )
    expires_in_s: int | None = Field(default=None, ge=1, le=2**31, description="By default it does not expire.")


class NewToken(BaseModel):
    """A token to create."""

    model_config = ConfigDict(extra="forbid")

    agent: str = Field(
        max_length=256,
        description="`type/key`: the only agent that it is for.",
        json_schema_extra={"pattern": ADDRESS},
    )
    scopes: list[Literal["read", "answer", "write"]] = Field(default=["read"], min_length=1, max_length=3)
    expires_in_s: int = Field(default=DEFAULT_TOKEN_S, ge=1, le=LONGEST_TOKEN_S)
    claims: dict[str, Any] = Field(
        default={},
        description="What agents are told of who has it, such as `sub` and `name`: at most 1 KiB of JSON. Whoever has "
        "the token can read them.",
    )


def _administration(request: Request) -> KeyAdministration:
    found: KeyAdministration | None = request.app.state.keys
    if found is None:
        raise ApiError(Problem(404, "no_keys"), "this gateway uses no keys: it was started with --no-auth")
    return found


def _client(request: Request) -> str | None:
    return request.client.host if request.client is not None else None


def _refuse_idempotency_key(request: Request) -> None:
    """Refuse a repetition: its answer would have the text of the key, which is not kept."""
    if "idempotency-key" in request.headers:
        message = (
            "keys and tokens are made anew by each request, as their texts are not kept for a repetition: send it "
            "without Idempotency-Key, and revoke what is too many"
        )
        raise ApiError(Problem(400, "unsupported_header"), message, "Idempotency-Key")


NOT_REPEATED: Final = [Depends(_refuse_idempotency_key)]
Administration: TypeAlias = Annotated[KeyAdministration, Depends(_administration)]
Client: TypeAlias = Annotated[str | None, Depends(_client)]
KeyId: TypeAlias = Annotated[str, Path(max_length=64, description="As the list of keys shows it.")]


@router.get("/keys", responses=statuses(404))
async def list_keys(
    caller: Called,
    keys: Administration,
    tenant: Annotated[str | None, Query(max_length=63, description="Keys of this tenant only.")] = None,
) -> KeyList:
    """List keys, without their texts. It needs the scope `admin`."""
    return await keys.keys(caller, tenant)


@router.post("/keys", status_code=201, responses=statuses(404), dependencies=NOT_REPEATED)
async def create_key(caller: Called, keys: Administration, client: Client, new: NewKey) -> CreatedKey:
    """Create a key. Its text is in this answer only. It needs the scope `admin`."""
    scopes = [Scope(scope) for scope in new.scopes]
    return await keys.create(caller, client, new.name, scopes, new.tenant, new.expires_in_s)


@router.delete("/keys/{key_id}", responses=statuses(404))
async def revoke_key(caller: Called, keys: Administration, client: Client, key_id: KeyId) -> KeyObject:
    """Revoke a key, or a link: requests with it are refused from now on. It needs the scope `admin`."""
    return await keys.revoke(caller, client, key_id)


@router.post("/keys/{key_id}/rotate", responses=statuses(404), dependencies=NOT_REPEATED)
async def rotate_key(caller: Called, keys: Administration, client: Client, key_id: KeyId) -> CreatedKey:
    """Give a key a new text, which is in this answer only; the old one is refused. It needs the scope `admin`."""
    return await keys.rotate(caller, client, key_id)


@router.post("/tokens", status_code=201, responses=statuses(404), dependencies=NOT_REPEATED)
async def create_token(caller: Called, keys: Administration, client: Client, new: NewToken) -> TokenObject:
    """Create a short-lived token for one agent, for a browser. It needs the scope `admin`."""
    agent = Address.parse(new.agent, caller.tenant)
    scopes = [Scope(scope) for scope in new.scopes]
    return await keys.create_token(caller, client, agent, scopes, new.expires_in_s, new.claims)
