"""The files of the page, served as they are: nothing from elsewhere, nothing inline, no cookies.

They are public: what the page shows, it fetches from the HTTP interface with the key of its user.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

__all__ = ["ANSWERING", "CONTENT_SECURITY_POLICY", "FILES", "answering", "router"]

_STATIC: Final = Path(__file__).parent / "static"
FILES: Final = {
    "": ("index.html", "text/html; charset=utf-8"),
    "app.js": ("app.js", "text/javascript; charset=utf-8"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
    "vendor/chat.js": ("vendor/chat.js", "text/javascript; charset=utf-8"),
    "vendor/LICENSES.txt": ("vendor/LICENSES.txt", "text/plain; charset=utf-8"),
}
"""By path: the file, and its media type."""
ANSWERING: Final = {
    "/answer": ("answer.html", "text/html; charset=utf-8"),
    "/answer.js": ("answer.js", "text/javascript; charset=utf-8"),
}
"""The page of a link, likewise: each gateway has it."""
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

router = APIRouter(include_in_schema=False)
answering = APIRouter(include_in_schema=False)
"""The page of a link."""


@router.get("/ui")
def get_page_without_slash() -> Response:
    """Lead to the page."""
    return RedirectResponse("/ui/", 308)


def _serve(of: APIRouter, path: str, name: str, media_type: str) -> None:
    content = (_STATIC / name).read_bytes()
    tag = f'"{sha256(content).hexdigest()[:32]}"'
    headers = {**_HEADERS, "ETag": tag}

    def get_file(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    of.add_api_route(path, get_file, name=f"page {name}", response_class=Response)


for _path, (_name, _media_type) in FILES.items():
    _serve(router, f"/ui/{_path}", _name, _media_type)
for _path, (_name, _media_type) in ANSWERING.items():
    _serve(answering, _path, _name, _media_type)
