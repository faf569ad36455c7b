"""Addresses of Ray clusters."""

from __future__ import annotations

import socket
from contextlib import closing

import pytest

from chronicle.errors import InvalidInput, Unavailable
from coordinator.cluster_address import check_address


def test_an_address_where_something_listens_is_accepted() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        check_address(f"127.0.0.1:{server.getsockname()[1]}")
        check_address(f"localhost:{server.getsockname()[1]}")


def test_nobody_waits_for_minutes_where_nothing_listens() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    with pytest.raises(Unavailable, match=rf"no Ray cluster answers at 127\.0\.0\.1:{port} \(.*\); start one with"):
        check_address(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    "address", ["", "local", "auto", "ray://head:10001", "head", "head:", ":6379", "a:99999", "a b:1"]
)
def test_what_is_no_address_is_refused_and_says_how_one_looks(address: str) -> None:
    with pytest.raises(InvalidInput, match="is not the address of a Ray cluster: give HOST:PORT"):
        check_address(address)
