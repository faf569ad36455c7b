"""Tools that are HTTP requests."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from chronicle.canonical import decode_input
from chronicle.errors import InvalidInput
from podium.tools.running import MAX_RESULT_BYTES

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from chronicle.canonical import Json, JsonObject
    from podium.tools.files.request_template import Body, HeaderTemplate, UrlTemplate
    from podium.tools.files.schema_arguments import SchemaArguments

__all__ = ["HttpTool"]

_MAX_ERROR_TEXT: Final = 2000


class RequestFailed(Exception):
    """A server answered with another status than 2xx."""


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return the settings of TLS; reading the certificates takes longer than most requests."""
    import httpx  # noqa: PLC0415  for agents with such tools only

    return httpx.create_ssl_context()


@dataclass(frozen=True, slots=True)
class HttpTool:
    """A request as the `podium.tools.tool_spec.Implementation` of a tool. Redirections are not followed."""

    parameters: SchemaArguments
    method: str
    url: UrlTemplate
    headers: Sequence[HeaderTemplate]
    body: Body | None
    needs_context = False

    def bind(self, arguments: JsonObject) -> Mapping[str, object]:
        """See `podium.tools.tool_spec.Implementation`."""
        self.parameters.check(arguments)
        headers = [(each.name.encode(), each.filled(arguments)) for each in self.headers]
        if self.body is not None and all(each.name.lower() != "content-type" for each in self.headers):
            headers.append((b"Content-Type", self.body.media_type.encode()))
        body = self.body.filled(arguments) if self.body is not None else None
        return {"url": self.url.filled(arguments), "headers": headers, "content": body}

    async def call(self, bound: Mapping[str, object], context: object) -> Json:
        """See `podium.tools.tool_spec.Implementation`. The result is JSON if the server says so, else text."""
        del context
        import httpx  # noqa: PLC0415  for agents with such tools only

        given: Any = bound
        async with (
            httpx.AsyncClient(timeout=None, verify=_tls()) as client,  # noqa: S113  the tool has a limit
            client.stream(self.method, **given) as response,
        ):
            content = b""
            async for part in response.aiter_bytes():
                content += part
                if len(content) > MAX_RESULT_BYTES:
                    raise RequestFailed(f"the answer has more than {MAX_RESULT_BYTES} bytes")
        text = content.decode(response.encoding or "utf-8", "replace")
        if not response.is_success:
            raise RequestFailed(f"HTTP {response.status_code}: {text[:_MAX_ERROR_TEXT]}")
        if response.headers.get("content-type", "").partition(";")[0].strip().lower().endswith("json"):
            try:
                return decode_input(content)
            except InvalidInput:
                pass  # it is no JSON: the model gets the text
        return text
