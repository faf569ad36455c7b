"""The record of an ended step: canonical JSON in the journal's table of steps, opaque to the journal.

Results and patches over 64 KiB are blobs of their own, which the record references.

The record of a pause is *open* at first: its result is null, and ``pause`` has no outcome. `closed` completes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NotRequired, TypeAlias, TypedDict, cast

from blake3 import blake3

from chronicle.blobs.ident import blob_id
from chronicle.canonical import Json, JsonObject, decode, encode
from chronicle.errors import InvalidInput, UnsupportedFormat
from chronicle.ids import BlobId
from chronicle.journal.chain import MAX_INLINE
from chronicle.workspace.port import TreeRef
from podium.artifacts.artifacts import content_in

if TYPE_CHECKING:
    from collections.abc import Iterable, MutableMapping, Sequence

    from chronicle.blobs.port import BlobReader
    from chronicle.journal.records import StoredStep
    from chronicle.workspace.content.content import Content
    from podium.events import ModelCallSummary, StepsSummary, StepSummary
    from podium.state import Patch

__all__ = [
    "BEGIN_ANEW",
    "GIVE_UP",
    "GO_ON",
    "QUESTION",
    "TRY_AGAIN",
    "FailedStep",
    "PauseKind",
    "PauseOutcome",
    "PauseRecord",
    "StepRecord",
    "StepView",
    "args_hash",
    "args_hash_of",
    "base_turn_of",
    "closed",
    "digest",
    "open_pause",
    "pause_of",
    "read_record",
    "roots_of",
    "standing",
    "started_ms_of",
    "step_of",
    "summary_of",
    "view",
    "write_record",
]

_FORMAT: Final = 1
_HEAD: Final = 200
"""Characters of the beginning of a result, which a person sees."""


class FailedStep(TypedDict):
    """A step that raised, and whose exception the program handled."""

    key: str
    args_hash: str
    cancelled: bool
    """Whether the program cancelled it."""
    module: str
    type: str
    """The exception's class."""
    message: str
    name: str
    started_ms: int
    ended_ms: int
    attempts: int
    data: NotRequired[JsonObject]
    """The JSON form of a `podium.models.ModelError`."""
    parts: NotRequired[list[Json]]
    """Of a step that streams: what the program got before the end."""
    left: NotRequired[bool]
    """Of a step that streams: whether the program left it before its end; then there was no exception."""


PauseKind: TypeAlias = Literal["decide", "promise", "sleep", "program"]
"""What a turn pauses for: an answer, one that may be a rejection, a time alone, or what becomes of steps that do not
fit the program any more."""
QUESTION: Final = "program"
"""The name of the step of the last kind; its key has no ``#``, as those of the program's own steps have."""
TRY_AGAIN: Final = "try_again"
GO_ON: Final = "go_on"
BEGIN_ANEW: Final = "begin_anew"
GIVE_UP: Final = "give_up"
PauseOutcome: TypeAlias = Literal["answered", "expired", "rejected"]


class PauseRecord(TypedDict):
    """The pause of a turn."""

    kind: PauseKind
    reason: str
    schema: Json
    """The JSON Schema of an answer."""
    expires: int | None
    """Epoch milliseconds; ``None`` if it waits for ever."""
    agents: NotRequired[list[str]]
    """The agents of the tenant that may answer a promise, ``type/key``; absent without any."""
    outcome: NotRequired[PauseOutcome]
    """How it ended; absent while the step is open."""
    by: NotRequired[str | None]
    """Who answered, as the edge names them; ``None`` if unknown."""
    error: NotRequired[str]
    """Why it was rejected."""
    fits: NotRequired[int]
    """Of a question about the program: how many of the steps that held then fit; ``go_on`` keeps these."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """An ended step: its result, and what the agent was at its end."""

    key: str
    """Its name and occurrence, ``name#1``; after ``MESSAGE_ID:`` for a step of ``on_steer``."""
    name: str
    args_hash: str
    result: Json
    effects: list[Json]
    """Effects of its function; see `podium.turn.steps.effects`."""
    patch: Patch
    """The change of the state since the end of the recorded step before, or since the beginning of the turn."""
    before: int | None
    """How many operations of the patch were made before the step began; ``None`` if it overlapped with another one."""
    version: int
    """The state class's ``_version``."""
    tree: TreeRef
    """The files at its end."""
    changes_files: bool
    """Whether they differed from those at the beginning of the turn."""
    started_ms: int
    ended_ms: int
    running: list[str]
    """The keys of the steps that were running at its end."""
    failed: list[FailedStep]
    """Steps that failed since the end of the recorded step before."""
    steered: list[str]
    """The messages that began to steer the turn since the end of the recorded step before."""
    base_turn: int
    """The agent's last turn when its attempt began: patch and tree are on top of it."""
    attempts: int = 1
    """Calls of its function."""
    model_call: ModelCallSummary | None = None
    """Summary of the call, if it was a call of a model."""
    pause: PauseRecord | None = None
    """Of a step at which the turn paused."""

    @property
    def is_open(self) -> bool:
        """Whether it is a pause that has not ended, so that it has no result."""
        return self.pause is not None and "outcome" not in self.pause


class StepView(TypedDict):
    """An ended step, as a person sees it."""

    message_id: str
    number: int
    """From 1, in the order of their ends."""
    name: str
    key: str
    started: int
    """Epoch milliseconds."""
    ended: int
    attempts: int
    """Calls of its function."""
    result: str | None
    """The beginning of its result as JSON; ``None`` of a pause that is open."""
    result_bytes: int
    changes: int
    """Operations of its patch of the state, with those of the code between the step before and it."""
    changes_files: bool
    """Whether the files at its end differed from those at the beginning of the turn."""
    tree_id: str


def standing(steps: Sequence[tuple[PauseRecord | None, Json]]) -> list[int]:
    """Return which of the steps of a message hold: those that no person has dropped; questions do not count.

    Args:
        steps: pause and result of each, in order.
    """
    held: list[int] = []
    for place, (pause, result) in enumerate(steps):
        if pause is None or pause["kind"] != "program":
            held.append(place)
            continue
        # At an open pause behind which there is a question no message has paused: it is asked for anew.
        held = [each for each in held if not _is_open(steps[each][0])]
        if result == GO_ON:
            del held[pause["fits"] :]
        elif result == BEGIN_ANEW:
            held.clear()
    return held


def _is_open(pause: PauseRecord | None) -> bool:
    return pause is not None and "outcome" not in pause


def args_hash(arguments: Json) -> str:
    """Return the hash of a step's arguments."""
    return blake3(encode(arguments)).hexdigest()


def digest(bodies: Iterable[bytes]) -> str:
    """Return the digest of a turn's steps, by the bodies of their records in order."""
    whole = blake3()
    for body in bodies:
        whole.update(blake3(body).digest())
    return whole.hexdigest()


def write_record(record: StepRecord, large: MutableMapping[BlobId, bytes]) -> bytes:
    """Return the body of a record.

    Args:
        large: gets the parts that go out of line; they must be durable before the body is stored.
    """
    return encode(
        {
            "format": _FORMAT,
            "key": record.key,
            "name": record.name,
            "args_hash": record.args_hash,
            **_in_or_out("result", record.result, large),
            **({"effects": record.effects} if record.effects else {}),
            **_in_or_out("patch", cast("Json", record.patch), large),
            "before": record.before,
            "version": record.version,
            "base_turn": record.base_turn,
            "tree_id": record.tree.tree_id,
            "oplog_id": record.tree.oplog_id,
            "changes_files": record.changes_files,
            "started_ms": record.started_ms,
            "ended_ms": record.ended_ms,
            **({"running": cast("Json", record.running)} if record.running else {}),
            **({"failed": cast("Json", record.failed)} if record.failed else {}),
            **({"steered": cast("Json", record.steered)} if record.steered else {}),
            "attempts": record.attempts,
            **({"model_call": cast("Json", record.model_call)} if record.model_call is not None else {}),
            **({"pause": cast("Json", record.pause)} if record.pause is not None else {}),
        }
    )


def open_pause(body: bytes) -> PauseRecord | None:
    """Return the pause of a record that is open; ``None`` of any other record.

    Raises:
        UnsupportedFormat: a newer version wrote it, or a host that does not keep to the format.
    """
    pause = pause_of(body)
    return pause if pause is not None and "outcome" not in pause else None


def pause_of(body: bytes) -> PauseRecord | None:
    """Return the pause of a record, open or ended; ``None`` without one.

    Raises:
        UnsupportedFormat: as for `open_pause`.
    """
    found = _checked(body)
    match found:
        case {
            "args_hash": str(),
            "base_turn": int(),
            "started_ms": int(),
            "pause": {
                "kind": "decide" | "promise" | "sleep" | "program",
                "reason": str(),
                "schema": _,
                "expires": int() | None,
                **more,
            } as pause,
        }:
            agents = more.get("agents", [])
            if isinstance(agents, list) and all(isinstance(each, str) for each in agents):
                return cast("PauseRecord", pause)
        case {"pause": dict()}:
            pass
        case _ if found.get("pause") is None:
            return None
    raise UnsupportedFormat("the record of a pause has a form that this version does not read")


def step_of(promise: str) -> str:
    """Return the name of the step at which a turn waits for a promise."""
    return f"promise {promise}"


def args_hash_of(body: bytes) -> str:
    """Return the hash of the arguments of a record."""
    return cast("str", _checked(body)["args_hash"])


def base_turn_of(body: bytes) -> int:
    """Return the turn on top of which the tree of a record is."""
    return cast("int", _checked(body)["base_turn"])


def started_ms_of(body: bytes) -> int:
    """Return when the step of a record began, in epoch milliseconds."""
    return cast("int", _checked(body)["started_ms"])


def closed(
    body: bytes, outcome: PauseOutcome, result: Json, by: str | None, now_ms: int, error: str | None = None
) -> bytes:
    """Return the body of a record that is open with the outcome of its pause.

    Args:
        result: the answer; ``None`` without one.
        by: who answered.
        error: why it was rejected.

    Raises:
        InvalidInput: the answer is too large, or not JSON.
    """
    found = _checked(body)
    if len(encode(result)) > MAX_INLINE:
        raise InvalidInput(f"an answer has at most {MAX_INLINE} bytes of JSON")
    pause = {**cast("JsonObject", found["pause"]), "outcome": outcome, "by": by}
    if error is not None:
        pause["error"] = error
    return encode({**found, "result": result, "pause": pause, "ended_ms": now_ms})


def read_record(body: bytes, blobs: BlobReader) -> StepRecord:
    """Return the record of a body.

    Raises:
        UnsupportedFormat: a newer version wrote it.
        NotFound, Corrupt, Unavailable: a part out of line cannot be read.
    """
    found = _checked(body)
    return StepRecord(
        cast("str", found["key"]),
        cast("str", found["name"]),
        cast("str", found["args_hash"]),
        _read("result", found, blobs),
        cast("list[Json]", found.get("effects", [])),
        cast("Patch", _read("patch", found, blobs)),
        cast("int | None", found["before"]),
        cast("int", found["version"]),
        _tree(found),
        cast("bool", found["changes_files"]),
        cast("int", found["started_ms"]),
        cast("int", found["ended_ms"]),
        cast("list[str]", found.get("running", [])),
        cast("list[FailedStep]", found.get("failed", [])),
        cast("list[str]", found.get("steered", [])),
        cast("int", found["base_turn"]),
        cast("int", found["attempts"]),
        cast("ModelCallSummary | None", found.get("model_call")),
        cast("PauseRecord | None", found.get("pause")),
    )


def roots_of(body: bytes) -> tuple[list[TreeRef], list[BlobId], list[Content]]:
    """Return the trees, the blobs and the contents of artifacts that a record references; that of its end is the first.

    Raises:
        UnsupportedFormat: a newer version wrote it.
    """
    found = _checked(body)
    parts = [BlobId(cast("str", found[key])) for key in ("result_ref", "patch_ref") if key in found]
    effects = cast("list[list[Any]]", found.get("effects", []))
    forks = [TreeRef(BlobId(effect[1]), BlobId(effect[2])) for effect in effects if effect[0] == "tree"]
    contents = [content_in(effect[1]) for effect in effects if effect[0] == "artifact"]
    return [_tree(found), *forks], parts, contents


def view(step: StoredStep) -> StepView:
    """Return a step for a person; what is out of line is not read."""
    found = _checked(step.body)
    is_open = open_pause(step.body) is not None
    return {
        "message_id": step.message_id,
        "number": step.number,
        "name": cast("str", found["name"]),
        "key": step.key,
        "started": cast("int", found["started_ms"]),
        "ended": cast("int", found["ended_ms"]),
        "attempts": cast("int", found["attempts"]),
        "result": None if is_open else _head(found),
        "result_bytes": _result_bytes(found),
        "changes": _changes(found),
        "changes_files": cast("bool", found["changes_files"]),
        "tree_id": cast("str", found["tree_id"]),
    }


def summary_of(bodies: Sequence[bytes], failed: Sequence[FailedStep]) -> StepsSummary:
    """Return what the record keeps of a turn's steps.

    Args:
        bodies: of the records of those that are done, in the order of their ends.
        failed: those that failed after the last of these.
    """
    steps: list[StepSummary] = []
    records = [_checked(body) for body in bodies]
    held = standing([(cast("PauseRecord | None", found.get("pause")), found.get("result")) for found in records])
    for place, found in enumerate(records):
        is_question = found["name"] == QUESTION and "pause" in found
        if "pause" in found and "outcome" not in cast("JsonObject", found["pause"]):
            continue  # no message has paused at it
        steps.extend(_failure(each) for each in cast("list[FailedStep]", found.get("failed", [])))
        done: StepSummary = {
            "key": cast("str", found["key"]),
            "name": cast("str", found["name"]),
            "status": "done" if is_question or place in held else "dropped",
            "started": cast("int", found["started_ms"]),
            "ended": cast("int", found["ended_ms"]),
            "attempts": cast("int", found["attempts"]),
            "result_bytes": _result_bytes(found),
            "changes": _changes(found),
            "changes_files": cast("bool", found["changes_files"]),
        }
        if "model_call" in found:
            done["model_call"] = cast("ModelCallSummary", found["model_call"])
        if "pause" in found:
            pause = cast("PauseRecord", found["pause"])
            done["pause"] = {"kind": pause["kind"], "outcome": pause["outcome"], "by": pause["by"]}
        steps.append(done)
    steps.extend(_failure(each) for each in failed)
    return {"count": len(bodies), "digest": digest(bodies), "steps": steps}


def _failure(failed: FailedStep) -> StepSummary:
    summary: StepSummary = {
        "key": failed["key"],
        "name": failed["name"],
        "status": "cancelled" if failed["cancelled"] else "left" if failed.get("left") else "failed",
        "started": failed["started_ms"],
        "ended": failed["ended_ms"],
        "attempts": failed["attempts"],
    }
    if summary["status"] == "failed":
        summary["error"] = failed["type"]
    return summary


def _result_bytes(found: JsonObject) -> int:
    return cast("int", found["result_bytes"]) if "result_ref" in found else len(encode(found["result"]))


def _changes(found: JsonObject) -> int:
    return cast("int", found["patch_items"]) if "patch_ref" in found else len(cast("Patch", found["patch"]))


def _head(found: JsonObject) -> str:
    return cast("str", found["result_head"]) if "result_ref" in found else _beginning(encode(found["result"]))


def _beginning(data: bytes) -> str:
    return data[: _HEAD * 4].decode("utf-8", "ignore")[:_HEAD]


def _in_or_out(key: str, value: Json, large: MutableMapping[BlobId, bytes]) -> JsonObject:
    data = encode(value)
    if len(data) <= MAX_INLINE:
        return {key: value}
    reference = blob_id(data)
    large[reference] = data
    items: JsonObject = {f"{key}_items": len(value)} if isinstance(value, list) else {}
    return {f"{key}_ref": reference, f"{key}_bytes": len(data), f"{key}_head": _beginning(data), **items}


def _read(key: str, found: JsonObject, blobs: BlobReader) -> Json:
    reference = found.get(f"{key}_ref")
    return found[key] if reference is None else decode(blobs.get(BlobId(cast("str", reference))))


def _checked(body: bytes) -> JsonObject:
    try:
        found = decode(body)
    except InvalidInput:
        found = None
    if not isinstance(found, dict) or found.get("format") != _FORMAT:
        raise UnsupportedFormat("the record of a step has a format that this version does not read")
    return found


def _tree(found: JsonObject) -> TreeRef:
    return TreeRef(BlobId(cast("str", found["tree_id"])), BlobId(cast("str", found["oplog_id"])))
