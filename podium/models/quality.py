"""How soon a call of a model is to be answered, and what may be done for that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

__all__ = ["MAX_PRIORITY", "DegradePolicy", "QosClass", "QualityOfService"]

QosClass: TypeAlias = Literal["interactive", "standard", "background", "batch"]
DegradePolicy: TypeAlias = Literal["forbid", "allow_compatible_fallback"]
MAX_PRIORITY: Final = 255


@dataclass(frozen=True, slots=True)
class QualityOfService:
    """The quality of service of a call."""

    qos_class: QosClass = "standard"
    priority: int = 128
    """0 to 255; among calls of a class that wait, the higher one goes first."""
    target_ttft_ms: int | None = None
    """When the first token is due after the caller asked. It is a wish: when it is over, a fallback is tried."""
    deadline_ms: int | None = None
    """Time from when the caller asked to the call's end, at the latest; then the call fails."""
    degrade_policy: DegradePolicy = "allow_compatible_fallback"
    """Whether another profile may answer if this one is saturated, slow or down."""
