"""A collection in a home in PostgreSQL, which asks before each change of the store. Run by its test.

    python -m tests.crash.home.gc_work CONNINFO SCHEMA DIRECTORY URL NOW_MS TTL_S [ID ...]

It holds the lease of the home for TTL_S. Before each change it prints ``change`` and waits for a line; at the end it
prints what it has dropped, or why it went no further. The ids are those of the reachable blobs.
"""

from __future__ import annotations

import sys
from pathlib import Path

from chronicle.blobs.gc.collector import GcRules, collect
from chronicle.clock import ManualClock
from chronicle.errors import Conflict
from chronicle.ids import BlobId
from coordinator.homes.postgres.collection_lease import LeaseTimes, PostgresCollectionLease
from coordinator.homes.postgres.database import open_schema

GRACE_S, WINDOW_S = 3_600.0, 86_400.0


def main() -> None:
    """See the module."""
    conninfo, schema, directory, url, now_ms, ttl_s, *reached = sys.argv[1:]
    times = LeaseTimes(float(ttl_s), float(ttl_s) / 10, float(ttl_s) / 4)
    lease = PostgresCollectionLease(open_schema(conninfo, schema), Path(directory), times)
    try:
        with lease.hold() as held:

            def ask() -> None:
                print("change", flush=True)
                sys.stdin.readline()
                held()

            report = collect(
                url,
                lambda: [BlobId(each) for each in reached],
                GcRules(grace_s=GRACE_S, kept_s=WINDOW_S),
                held=ask,
                clock=ManualClock(int(now_ms)),
            )
    except Conflict as error:
        print(error, flush=True)
    else:
        print(f"dropped {report.dropped}", flush=True)


if __name__ == "__main__":
    main()
