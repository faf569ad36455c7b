"""Commands whose network is a list of hosts, on bubblewrap: what reaches the servers of these, and what does not."""

from __future__ import annotations

import asyncio
import io
import sys
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from podium.errors import CommandNotStarted, SandboxRefused
from podium.sandbox import probe as probing
from podium.sandbox.egress import listening
from podium.sandbox.egress.allow_list import Proxied
from podium.sandbox.egress.proxy import Denied
from podium.sandbox.on_rung import run_on
from podium.sandbox.policy import RUNGS, Policy, Rung
from podium.sandbox.running import run
from tests.fuse.sandbox.egress.internet import PUBLIC, Internet
from tests.fuse.sandbox.test_running import Heard

ALLOWED: Final = ("files.example.org", "*.example.org:443", "rebinds.example.org:80", "inside.example.org")
KEY: Final = "Bearer sk-of-the-host"
PYTHON: Final = tuple({Path(sys.base_prefix), Path(sys.prefix)})


@pytest.fixture
async def internet(tmp_path: Path) -> AsyncIterator[Internet]:
    async with Internet(tmp_path).running() as internet:
        yield internet


class Ran:
    """A command that has run, with what it wrote and was denied."""

    def __init__(self) -> None:
        self.heard = Heard()
        self.denied: list[Denied] = []
        self.status = -1

    async def deny(self, denied: Denied) -> None:
        self.denied.append(denied)

    @property
    def output(self) -> str:
        return self.heard.text("stdout") + self.heard.text("stderr")

    def hosts(self) -> list[str]:
        return [f"{each.host}:{each.port}" for each in self.denied]


async def ran(
    internet: Internet, argv: list[str], allow: tuple[str, ...] = ALLOWED, writable: tuple[Path, ...] = ()
) -> Ran:
    credentials = {"api.example.org": {"Authorization": KEY}}
    policy = Policy(
        network=Proxied(allow=allow, credentials=credentials if "*.example.org:443" in allow else {}),
        readable=(internet.certificate, *PYTHON),
        writable=writable,
        environment={"CURL_CA_BUNDLE": str(internet.certificate), "SSL_CERT_FILE": str(internet.certificate)},
    )
    it = Ran()
    ended = await run_on("bubblewrap", argv, policy, on_output=it.heard, on_denied=it.deny, outside=internet.outside())
    it.status = ended.status
    return it


def shell(script: str) -> list[str]:
    return ["sh", "-c", script]


def python(code: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", code]


async def test_curl_and_urllib_go_through_it(internet: Internet) -> None:
    script = f"curl -sS https://files.example.org/ http://files.example.org/; {sys.executable} -I -S -c '$code'"
    code = 'import urllib.request as r; print(r.urlopen("https://other.example.org/").read())'
    it = await ran(internet, shell(script.replace("$code", code)))
    assert it.output == "hello\nhello\nb'hello\\n'\n", it.output
    assert it.denied == []
    assert internet.connected == [(PUBLIC, 443), (PUBLIC, 80), (PUBLIC, 443)]


async def test_pip_installs_from_an_allowed_index(internet: Internet, tmp_path: Path) -> None:
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("demo.py", "")
        archive.writestr("demo-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        archive.writestr("demo-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr("demo-1.0.dist-info/RECORD", "")
    name = "demo-1.0-py3-none-any.whl"
    internet.files |= {"/simple/demo/": f'<a href="/{name}">{name}</a>'.encode(), f"/{name}": wheel.getvalue()}
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    pip = [sys.executable, "-m", "pip", "--isolated", "install", "--quiet", "--no-deps", "--target", "there"]
    options = ["--index-url", "https://files.example.org/simple", "--cert", str(internet.certificate), "demo"]
    it = await ran(internet, [*pip, *options], writable=(workspace,))
    assert (it.status, (workspace / "there" / "demo.py").exists()) == (0, True), it.output


@pytest.mark.parametrize(
    ("asked", "denied"),
    [
        ("https://evil.example.com/", "evil.example.com:443"),
        ("https://example.org/", "example.org:443"),
        ("https://files.example.org.evil.com/", "files.example.org.evil.com:443"),
        ("http://other.example.org/", "other.example.org:80"),
        ("https://files.example.org:8443/", "files.example.org:8443"),
        (f"https://{PUBLIC}/", f"{PUBLIC}:443"),
        ("http://127.0.0.1:22/", "127.0.0.1:22"),
        ("http://[::1]:22/", "::1:22"),
        ("http://[::ffff:127.0.0.1]:22/", "::ffff:127.0.0.1:22"),
        ("http://2130706433:22/", "127.0.0.1:22"),  # curl itself reads it as an address
        ("http://169.254.169.254/latest/meta-data/", "169.254.169.254:80"),
        ("https://inside.example.org/", "inside.example.org:443"),
    ],
)
async def test_what_is_not_on_the_list_is_denied(internet: Internet, asked: str, denied: str) -> None:
    internet.addresses["inside.example.org"] = [["10.0.0.7", "::1", "169.254.169.254"]]
    it = await ran(internet, ["curl", "-sS", "--noproxy", "", "--fail", asked])
    assert it.status in (22, 56), it.output
    assert it.hosts() == [denied]
    assert internet.connected == []


async def test_without_the_proxy_there_is_no_way(internet: Internet) -> None:
    code = """if 1:
        import socket
        for address in (("93.184.216.34", 443), ("10.0.0.1", 80), ("169.254.169.254", 80)):
            try:
                socket.create_connection(address, 10)
            except OSError as error:
                print(error.errno)
        try:
            socket.getaddrinfo("files.example.org", 443)
        except OSError:
            print("no name")
        sender = socket.socket(type=socket.SOCK_DGRAM)
        try:
            sender.sendto(b"?", ("9.9.9.9", 53))
        except OSError as error:
            print(error.errno)"""
    it = await ran(internet, python(code))
    assert it.output.split("\n") == ["101", "101", "101", "no name", "101", ""]  # ENETUNREACH
    it = await ran(internet, ["curl", "-sS", "--noproxy", "*", "https://files.example.org/"])
    assert (it.status, internet.connected) == (6, [])


TUNNEL = """if 1:
    import socket, ssl
    proxy = socket.create_connection(("127.0.0.1", 3128))
    proxy.sendall(b"CONNECT files.example.org:443 HTTP/1.1\\r\\n\\r\\n")
    assert b" 200 " in proxy.recv(1000)
    """


@pytest.mark.parametrize(
    ("then", "reason"),
    [
        ("ssl._create_unverified_context().wrap_socket(proxy, server_hostname='other.example.org')", "used for other."),
        ("ssl._create_unverified_context().wrap_socket(proxy, server_hostname=None)", "used for no name"),
        ("proxy.sendall(b'CONNECT evil.com:443 HTTP/1.1\\r\\n\\r\\n'); assert proxy.recv(1)", "carries TLS only"),
        ("proxy.sendall(b'SSH-2.0-x\\r\\n'); assert proxy.recv(1)", "carries TLS only"),
        ("proxy.sendall(b'\\x16\\x03\\x01\\x40\\x00' + bytes(17000)); assert proxy.recv(1)", "carries TLS only"),
    ],
)
async def test_a_tunnel_is_for_its_own_host(internet: Internet, then: str, reason: str) -> None:
    it = await ran(internet, python(TUNNEL + then))
    assert it.status == 1
    assert [(each.host, reason in each.reason) for each in it.denied] == [("files.example.org", True)], it.denied
    assert internet.requests == []


async def test_what_was_checked_is_what_is_connected_to(internet: Internet) -> None:
    internet.addresses["rebinds.example.org"] = [[PUBLIC], ["127.0.0.1"]]
    it = await ran(internet, shell("curl -sS http://rebinds.example.org/; curl -sS http://rebinds.example.org/"))
    assert internet.connected == [(PUBLIC, 80)]
    assert it.hosts() == ["rebinds.example.org:80"]
    assert "none of the public internet" in it.output


async def test_credentials_stay_outside(internet: Internet) -> None:
    script = "env; curl -sS -H 'authorization: mine' -H 'Proxy-Authorization: x' -d body http://api.example.org/; "
    it = await ran(internet, shell(script + "curl -sS https://api.example.org/"))
    assert it.status == 0, it.output
    assert KEY not in it.output
    assert internet.connected == [(PUBLIC, 443), (PUBLIC, 443)]
    with_key, without = internet.requests
    assert f"\r\nAuthorization: {KEY}\r\n".encode() in with_key
    assert with_key.lower().count(b"authorization") == 1
    assert with_key.endswith(b"\r\n\r\nbody")
    assert KEY.encode() not in without


async def test_one_request_a_connection(internet: Internet) -> None:
    """A second one on it could be for any host of the same server."""
    code = """if 1:
        import socket
        proxy = socket.create_connection(("127.0.0.1", 3128))
        one = b"GET http://files.example.org/ HTTP/1.1\\r\\nHost: evil.com\\r\\nConnection: keep-alive\\r\\n\\r\\n"
        proxy.sendall(one + one.replace(b"files", b"other"))
        while piece := proxy.recv(1000):
            print(piece.decode())"""
    it = await ran(internet, python(code))
    assert it.output.count("hello") == 1
    assert [each.split(b"\r\n")[1] for each in internet.requests] == [b"Host: files.example.org"]


async def test_it_ends_with_its_command(internet: Internet) -> None:
    tasks = asyncio.all_tasks()
    it = await ran(internet, python(TUNNEL + "import os; os.fork() and os._exit(3); import time; time.sleep(1000)"))
    assert it.status == 3
    assert {each for each in asyncio.all_tasks() - tasks if "sandbox" in each.get_name()} == set()


async def test_a_proxy_that_is_away_is_said(internet: Internet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "_BEFORE", "raise SystemExit('no interpreter here')")
    with pytest.raises(CommandNotStarted, match="has not been connected with the proxy"):
        await ran(internet, ["true"])


async def test_a_weaker_rung_has_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(network=Proxied(allow=("files.example.org",)), at_least="none")
    found: dict[Rung, str | None] = {**dict.fromkeys(RUNGS), "bubblewrap": "no user namespaces"}
    monkeypatch.setattr(probing, "_found", found)
    with pytest.raises(SandboxRefused, match="bubblewrap or a stronger one, and nothing was run: .*no user namesp"):
        await run(["true"], policy, on_output=Heard())
    for rung in RUNGS[:2]:
        with pytest.raises(SandboxRefused, match="weaker"):
            await run_on(rung, ["true"], policy, on_output=Heard())
