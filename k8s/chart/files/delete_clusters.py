"""Delete the RayClusters of a release but one, which serves its home: python delete_clusters.py RELEASE CLUSTER.

It is run by the Job of the chart that upgrades, with the token of its ServiceAccount, which may list and delete
RayClusters of its namespace. Kubernetes ends the pods of a cluster that is deleted in order.
"""

import json
import os
import ssl
import sys
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = Path(os.environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
TIMEOUT_S = 30


def ask(method: str, path: str) -> dict[str, Any]:
    """Return the answer of the API server."""
    url = os.environ.get("API", "https://kubernetes.default.svc") + path
    token = (ACCOUNT / "token").read_text(encoding="utf-8").strip()
    request = urllib.request.Request(url, method=method, headers={"Authorization": f"Bearer {token}"})  # noqa: S310  the API server
    trust = ssl.create_default_context(cafile=ACCOUNT / "ca.crt") if url.startswith("https:") else None
    with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trust) as answer:  # noqa: S310  likewise
        found: dict[str, Any] = json.load(answer)
    return found


def main(release: str, kept: str) -> None:
    """Delete the clusters of a release that are not the one that is kept."""
    namespace = (ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    clusters = f"/apis/ray.io/v1/namespaces/{namespace}/rayclusters"
    selector = urllib.parse.urlencode({"labelSelector": f"app.kubernetes.io/instance={release}"})
    names = [each["metadata"]["name"] for each in ask("GET", f"{clusters}?{selector}")["items"]]
    if kept not in names:
        raise SystemExit(f"there is no RayCluster {kept}: nothing is deleted")
    for name in names:
        if name != kept:
            ask("DELETE", f"{clusters}/{name}")
            sys.stdout.write(f"deleted RayCluster {name}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
