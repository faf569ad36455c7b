"""How the application is served: `server_config` puts protection, limits and TLS around it."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import uvicorn

from chronicle.errors import InvalidInput
from coordinator.gateway.protection.http_protocol import guarded_protocol
from coordinator.gateway.protection.middleware import Protection

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from chronicle.clock import Clock
    from coordinator.gateway.protection.rules import Rules, Tls

__all__ = ["server_config", "tls_context"]


def server_config(app: ASGIApp, rules: Rules, clock: Clock) -> uvicorn.Config:
    """Return uvicorn's configuration for an application.

    ``X-Forwarded-…`` is believed of trusted proxies only, so that addresses in limits and records are those of clients.

    Raises:
        InvalidInput: the files of the certificate cannot be used.
    """
    tls: dict[str, Any] = {}
    if rules.tls is not None:
        tls_context(rules.tls)
        tls = {"ssl_certfile": rules.tls.certificate, "ssl_keyfile": rules.tls.key}
    return uvicorn.Config(
        Protection(app, rules, clock),
        lifespan="off",
        ws="none",
        http=guarded_protocol(rules),
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(rules.trusted_proxies),
        forwarded_allow_ips=list(rules.trusted_proxies),
        **tls,
    )


def tls_context(tls: Tls) -> ssl.SSLContext:
    """Load a certificate as the server does.

    Raises:
        InvalidInput: its files cannot be used; the message names them.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"the certificate {tls.certificate} with the key {tls.key} cannot be used: {error}"
        ) from error
    return context
