"""The results of operations: HTTP answers with them as JSON objects, the client returns them. Begin with `result`.

Times are epoch milliseconds, sizes bytes. Each result has one subject; a key that is null says so in its description. A
reader ignores unknown keys. The modules divide them by subject; they are imported from here, at their first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chronicle.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from coordinator.operations.objects.agents import *  # noqa: F403
    from coordinator.operations.objects.deploys import *  # noqa: F403
    from coordinator.operations.objects.files import *  # noqa: F403
    from coordinator.operations.objects.history import *  # noqa: F403
    from coordinator.operations.objects.messages import *  # noqa: F403
    from coordinator.operations.objects.pages import *  # noqa: F403
    from coordinator.operations.objects.retention import *  # noqa: F403
else:
    _SUBJECTS = ("pages", "agents", "messages", "history", "files", "retention", "deploys")
    __getattr__, __dir__ = lazy_exports(__name__, {}, *(f"{__name__}.{subject}" for subject in _SUBJECTS))
