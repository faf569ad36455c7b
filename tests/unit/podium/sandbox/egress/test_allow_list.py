"""Lists of hosts, and addresses that are not reached, whatever name leads there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from podium.errors import SandboxRefused
from podium.sandbox.egress.allow_list import Proxied
from podium.sandbox.egress.outside import is_public, of_this_machine


def test_what_a_list_allows() -> None:
    network = Proxied(allow=("pypi.org", "*.Example.org", "git.example.com:8443", "*.a.example.com:22"))
    allowed = [
        ("pypi.org", 80),
        ("pypi.org", 443),
        ("files.example.org", 443),
        ("a.b.example.org", 443),
        ("git.example.com", 8443),
        ("x.a.example.com", 22),
    ]
    denied = [
        ("www.pypi.org", 443),
        ("pypi.org", 22),
        ("example.org", 443),
        ("notexample.org", 443),
        ("pypi.org.evil.com", 443),
        ("git.example.com", 443),
        ("x.a.example.com", 443),
        (".example.org", 22),
        ("", 443),
    ]
    assert [each for each in allowed if not network.allows(*each)] == []
    assert [each for each in denied if network.allows(*each)] == []


@pytest.mark.parametrize(
    "entry",
    [
        *(
            "",
            "*",
            "*.org",
            "*.",
            "a.*.org",
            "pypi.org:",
            "pypi.org:0",
            "pypi.org:65536",
            "pypi.org:https",
            "pypi.org:४४३",
        ),
        *(
            "https://pypi.org",
            "pypi.org/simple",
            "user@pypi.org",
            "pypi.org.",
            "-a.org",
            "a..org",
            " pypi.org",
            "a b.org",
        ),
        *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "[::1]", "::1", "1.2.3.4:443"),
        *("bücher.example.org", "pypi.org\n", "pypi.org\x00", "a" * 64 + ".org", "a." * 130 + "org"),
    ],
)
def test_an_entry_that_is_none(entry: str) -> None:
    with pytest.raises(SandboxRefused, match=re.escape(repr(entry))):
        Proxied(allow=("pypi.org", entry))


def test_an_empty_list_is_refused() -> None:
    with pytest.raises(SandboxRefused, match="allows no host"):
        Proxied(allow=())


@pytest.mark.parametrize(
    ("credentials", "said"),
    [
        ({"other.org": {"A": "b"}}, "no host that the sandbox may reach"),
        ({"*.example.org": {"A": "b"}}, "no host that the sandbox may reach"),
        ({"Pypi.org": {"A": "b"}}, "no host that the sandbox may reach"),
        ({"pypi.org": {"A b": "c"}}, "no header"),
        ({"pypi.org": {"Host": "c"}}, "no header"),
        ({"pypi.org": {"Transfer-Encoding": "c"}}, "no header"),
        ({"pypi.org": {"A": "b\r\nHost: c"}}, "no text of a header"),
    ],
)
def test_credentials_that_are_none(credentials: Any, said: str) -> None:
    with pytest.raises(SandboxRefused, match=said) as raised:
        Proxied(allow=("pypi.org", "*.example.org"), credentials=credentials)
    assert "b\r" not in str(raised.value)


def test_credentials_are_not_shown() -> None:
    assert "sk-1" not in repr(Proxied(allow=("pypi.org",), credentials={"pypi.org": {"A": "sk-1"}}))


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "127.8.8.8",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "100.100.100.200",
        ),
        *("169.254.169.254", "168.63.129.16", "192.0.0.192", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1"),
        *(
            "::ffff:127.0.0.1",
            "::ffff:a9fe:a9fe",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a00:1",
            "64:ff9b:1::a00:1",
        ),
        *("2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:4136:e378:8000:63bf:f5ff:fffe", "not an address", ""),
    ],
)
def test_an_address_that_is_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
)
def test_an_address_that_is(address: str) -> None:
    assert is_public(address)


def test_addresses_of_this_machine() -> None:
    assert of_this_machine("127.0.0.1")
    assert not of_this_machine("93.184.216.34")
