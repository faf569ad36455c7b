"""Addresses: what is accepted, what is refused and how it is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chronicle.ids import BranchId, SessionId
from chronicle.journal.records import DEFAULT_NAMESPACE, Session
from podium.address import DEFAULT_TENANT, MAX_KEY_LENGTH, Address, label
from podium.errors import InvalidAddress


@pytest.mark.parametrize("key", ["a", "alice", "Alice Smith", "ключ", "a.b", "x" * MAX_KEY_LENGTH, "user@example.org"])
def test_ordinary_keys_are_accepted(key: str) -> None:
    address = Address("hello", key)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("", "empty"),
        ("a/b", "'/'"),
        ("..", "'..'"),
        ("a..b", "'..'"),
        (".", "'.'"),
        ("x" * (MAX_KEY_LENGTH + 1), "129 characters; 128"),
        ("a\nb", "control characters"),
        (" a", "white space"),
        ("a\x00", "control characters"),
    ],
)
def test_unusable_keys_are_refused_with_the_reason(key: str, says: str) -> None:
    with pytest.raises(InvalidAddress, match=says.replace(".", r"\.")):
        Address("hello", key)


@pytest.mark.parametrize("agent_type", ["", "a/b", "9lives", "a b", "x" * 65, "a..b", "é"])
def test_unusable_types_are_refused(agent_type: str) -> None:
    with pytest.raises(InvalidAddress, match="agent type"):
        Address(agent_type, "a")


def test_an_address_without_a_slash_is_refused() -> None:
    with pytest.raises(InvalidAddress, match="type/key"):
        Address.parse("hello")


@given(st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_workspace_ids_are_safe_file_names_and_differ(left: str, right: str) -> None:
    try:
        first, second = Address("t", left), Address("t", right)
    except InvalidAddress:
        return
    assert all(part.isascii() and (part.isalnum() or part in "_-") for part in first.workspace_id)
    assert not first.workspace_id.startswith(".")
    assert (first.workspace_id == second.workspace_id) == (left == right)


# -- tenants -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("hello/alice", ("default", "hello", "alice")),
        ("default:hello/alice", ("default", "hello", "alice")),
        ("acme:hello/alice", ("acme", "hello", "alice")),
        ("hello/a:b", ("default", "hello", "a:b")),
        ("acme:hello/other:hello", ("acme", "hello", "other:hello")),
    ],
)
def test_a_tenant_comes_before_the_type(text: str, parts: tuple[str, str, str]) -> None:
    address = Address.parse(text)
    assert (address.tenant, address.agent_type, address.key) == parts
    assert Address.parse(str(address)) == address
    assert Address.parse(address.name, address.tenant) == address


def test_an_address_without_a_tenant_gets_the_given_one() -> None:
    assert str(Address.parse("hello/alice", "acme")) == "acme:hello/alice"
    assert str(Address.parse("default:hello/alice", "acme")) == "hello/alice"


@pytest.mark.parametrize("tenant", ["", "Acme", "a b", "a/b", "a:b", "-a", "_a", "é", "a" * 64, "a.b", "..", "a\n"])
def test_unusable_tenants_are_refused(tenant: str) -> None:
    with pytest.raises(InvalidAddress, match="tenant"):
        Address("hello", "alice", tenant)


@pytest.mark.parametrize("text", [":hello/alice", "a:b:hello/alice", "Acme:hello/alice"])
def test_texts_with_unusable_tenants_are_refused(text: str) -> None:
    with pytest.raises(InvalidAddress, match="tenant"):
        Address.parse(text)


def test_agents_of_the_default_tenant_keep_their_workspaces() -> None:
    assert Address("hello", "alice").workspace_id == "hello-alice-5319432e1af08d09"
    assert Address("a-", "-b_c é").workspace_id == "a-b_c-1e9f8ab495f4ec17"
    acme = Address("hello", "alice", "acme")
    assert acme.workspace_id.startswith("acme-hello-alice-")
    assert acme.workspace_id != Address("acme-hello", "alice").workspace_id


def test_an_address_of_a_session() -> None:
    session = Session(SessionId("ses_1"), "hello/alice", BranchId("br_1"), 1, "acme")
    assert Address.of(session) == Address("hello", "alice", "acme")
    assert label(session) == "acme:hello/alice"
    with pytest.raises(InvalidAddress, match="not an agent's"):
        Address.of(Session(SessionId("ses_1"), "imported:br_1", BranchId("br_1"), 1))


def test_the_default_tenant_is_the_default_namespace() -> None:
    assert DEFAULT_TENANT == DEFAULT_NAMESPACE
