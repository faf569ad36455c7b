"""Canonical JSON: one sequence of bytes for one value, so that values can be hashed, compared and signed.

It is RFC 8785 (keys sorted by UTF-16 code units, no white space, ECMAScript's number text) with one extension:
integers of any size are written with their exact digits, where RFC 8785 would round them to a double.

orjson writes the text. A pass before it checks the value and substitutes encoded fragments where orjson would write
something else (floats that it and ECMAScript write differently, integers over 64 bits, keys outside ASCII). The pass
checks the *set* of types in a container, so that plain data costs little more than orjson alone.

The JSON policy is here, too. What comes from outside (clients, users, other programs) is read by `decode_input`,
which refuses what a later reader could not read, or would read otherwise: its limits are well below those of `encode`
and `decode`, as inside it is wrapped into other values. What Podium itself has written, `decode` reads.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from decimal import MAX_EMAX, MAX_PREC, Context, Decimal
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias, cast

import orjson

from chronicle.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MAX_DIGITS", "MAX_INPUT_DEPTH", "Json", "JsonObject", "decode", "decode_input", "encode", "encode_input"]

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
"""A JSON value. Decoding distinguishes integers and floats by their text: ``1`` is an int, ``1.5`` a float."""
JsonObject: TypeAlias = "dict[str, Json]"

MAX_INPUT_DEPTH: Final = 100
"""Nesting depth of what comes from outside."""
MAX_DIGITS: Final = 4300
"""Digits of an integer that comes from outside: Python's `int` and pydantic's reader refuse longer texts."""
_MAX_DEPTH: Final = 200
"""Nesting depth of what is written; orjson's limit is 254. A value that contains itself fails here, too."""
_EXACT_FLOAT_INT: Final = 2.0**53
"""Below it an integral float has the same digits as the int; above, ECMAScript pads with zeros."""
_MAX_I64: Final = 2**63 - 1
_MIN_I64: Final = -(2**63)
_TEXT: Final[frozenset[type]] = frozenset({str})
_PLAIN: Final[frozenset[type]] = frozenset({str, int, bool, type(None)})
_PLAIN_BUT_INT: Final[frozenset[type]] = _PLAIN - {int}
_DIGITS_TO_ZERO: Final = bytes(0x30 if 0x30 <= byte <= 0x39 else 0x20 for byte in range(256))
_LONG_INTEGER: Final = b"0" * 19
"""Integers of up to 18 digits fit 64 bits with any sign; orjson reads longer ones as floats."""
_TOO_MANY_DIGITS: Final = b"0" * (MAX_DIGITS + 1)
_REPR_FLOAT: Final = re.compile(r"(\d)(?:\.(\d+))?e([+-]\d+)")
_EXACT: Final = Context(prec=MAX_PREC, Emax=MAX_EMAX)


def encode(value: object) -> bytes:
    """Return the canonical bytes of a JSON value.

    Lists and tuples become arrays; subclasses of the JSON types are encoded as their plain value.

    Raises:
        InvalidInput: the value, or something in it, is not JSON: NaN and infinities, bytes, other types, keys that are
            not text, text with a lone surrogate, more than 200 levels. The message holds its RFC 6901 path.
    """
    try:
        plain = _plain_dict(value, _PLAIN, 1) if type(value) is dict else _plain(value, _PLAIN, 0)
        return orjson.dumps(plain, option=orjson.OPT_SORT_KEYS)
    except (_NotJsonError, orjson.JSONEncodeError):
        # Something is not JSON, whose path is only now determined; or an integer is over 64 bits, too rare for a check
        # in advance.
        _refuse_what_is_not_json(value, ())
        return orjson.dumps(_plain(value, _PLAIN_BUT_INT, 0), option=orjson.OPT_SORT_KEYS)


def decode(data: bytes) -> Json:
    """Return the value of a JSON text in UTF-8, canonical or not; integers of any size are exact.

    Raises:
        InvalidInput: the text is not JSON.
    """
    if _LONG_INTEGER in data.translate(_DIGITS_TO_ZERO):
        return _parsed(data, _exact_int, dict)
    return _loaded(data)


def decode_input(data: bytes) -> Json:
    """Return the value of a JSON text that comes from outside; what it accepts, every later reader reads alike.

    Raises:
        InvalidInput: the text is not JSON, is nested more than `MAX_INPUT_DEPTH` levels deep, or has an integer of more
            than `MAX_DIGITS` digits, a number that no double holds, or an object with two members of one name.
    """
    is_long = _LONG_INTEGER in data.translate(_DIGITS_TO_ZERO)
    value = _parsed(data, _bounded_int, _members) if is_long else _loaded(data)
    if _containers(data) > MAX_INPUT_DEPTH and _is_deeper(value, MAX_INPUT_DEPTH):
        raise InvalidInput(f"not JSON that is accepted: it is nested more than {MAX_INPUT_DEPTH} levels deep")
    if not is_long and _strings(data) != _strings(orjson.dumps(value)):  # the value has lost members
        _parsed(data, _bounded_int, _members)
    return value


def encode_input(value: object) -> bytes:
    """Return the canonical bytes of a value that comes from outside.

    Raises:
        InvalidInput: it is not JSON, or `decode_input` would refuse its text.
    """
    data = encode(value)
    if len(data) > MAX_INPUT_DEPTH and (
        _containers(data) > MAX_INPUT_DEPTH or _TOO_MANY_DIGITS in data.translate(_DIGITS_TO_ZERO)
    ):
        decode_input(data)
    return data


class _NotJsonError(Exception):
    """A part of the value is not JSON."""


def _plain(value: object, plain: frozenset[type], depth: int) -> object:
    """Return ``value`` itself if orjson writes it canonically, else an equal value for which it does."""
    if type(value) in plain:
        return value
    if isinstance(value, dict):
        return _plain_dict(value, plain, depth + 1)
    if isinstance(value, list | tuple):
        return _plain_list(value, plain, depth + 1)
    if isinstance(value, float):
        return _plain_float(value)
    if isinstance(value, int):
        return _plain_int(value)
    if isinstance(value, str):
        return str.__str__(value)
    raise _NotJsonError


def _plain_list(value: list[object] | tuple[object, ...], plain: frozenset[type], depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise _NotJsonError
    if plain.issuperset(map(type, value)):
        return value if type(value) in (list, tuple) else list(value)
    return [item if type(item) in plain else _plain(item, plain, depth) for item in value]


def _plain_dict(value: dict[Any, Any], plain: frozenset[type], depth: int) -> object:
    if depth > _MAX_DEPTH:
        raise _NotJsonError
    if not _TEXT.issuperset(map(type, value)):
        if not all(isinstance(key, str) for key in value):
            raise _NotJsonError
        value = {str.__str__(key): item for key, item in value.items()}
    if not "".join(value).isascii():
        return _wide_dict(value, plain, depth)
    if plain.issuperset(map(type, value.values())):
        return value if type(value) is dict else dict(value)
    return {
        key: item
        if (kind := type(item)) in plain
        else _plain_dict(item, plain, depth + 1)
        if kind is dict
        else _plain(item, plain, depth)
        for key, item in value.items()
    }


def _wide_dict(value: dict[str, object], plain: frozenset[type], depth: int) -> object:
    """Encode a dict with keys outside ASCII, for which the orders by UTF-16 and by UTF-8 may differ."""
    members = [
        orjson.dumps(key) + b":" + orjson.dumps(_plain(value[key], plain, depth), option=orjson.OPT_SORT_KEYS)
        for key in sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
    ]
    return orjson.Fragment(b"{" + b",".join(members) + b"}")


def _plain_int(value: int) -> object:
    if _MIN_I64 <= value <= _MAX_I64:
        return int(value)
    # Decimal, as str() refuses more than 4,300 digits.
    return orjson.Fragment(format(_EXACT.create_decimal(int(value)), "f").encode())


def _plain_float(value: float) -> object:
    magnitude = abs(value)
    if value.is_integer():
        if magnitude < _EXACT_FLOAT_INT:
            return int(value)
    elif 1e-4 <= magnitude < 1e15:  # in this range Python, orjson and ECMAScript write plain decimals
        return float(value)
    elif not math.isfinite(value):
        raise _NotJsonError
    return orjson.Fragment(_ecmascript_float(float(value)).encode())


def _ecmascript_float(value: float) -> str:
    """ECMAScript's Number::toString, from Python's repr, which has the same shortest digits."""
    text = repr(value)
    sign = "-" if value < 0 else ""
    match = _REPR_FLOAT.fullmatch(text.removeprefix("-"))
    if match is None:
        return text.removesuffix(".0")
    digits, exponent = match[1] + (match[2] or ""), int(match[3])
    if 0 <= exponent < 21:  # ECMA-262 6.1.6.1.20
        return sign + digits + "0" * (exponent + 1 - len(digits))
    if -7 < exponent < 0:
        return sign + "0." + "0" * (-exponent - 1) + digits
    mantissa = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
    return f"{sign}{mantissa}e{exponent:+d}"


def _loaded(data: bytes) -> Json:
    """Return the value of a text without long integers."""
    try:
        value: Json = orjson.loads(data)
    except ValueError as error:
        raise InvalidInput(f"not JSON: {error}") from error
    return value


def _parsed(data: bytes, parse_int: Callable[[str], int], members: Callable[[list[tuple[str, Json]]], object]) -> Json:
    """Return the value of any text, slowly: orjson reads neither long integers nor members of one name exactly."""
    try:
        value = json.loads(
            data.decode(),
            parse_int=parse_int,
            parse_float=_finite,
            parse_constant=_finite,
            object_pairs_hook=members,
        )
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"not JSON: {error}") from error
    _refuse_what_is_not_json(value, ())
    return cast("Json", value)


def _containers(data: bytes) -> int:
    """Return a number that is not below that of the containers in a text, and so not below its depth."""
    return data.count(b"[") + data.count(b"{")


def _is_deeper(value: Json, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else cast("list[Json]", container))
            if isinstance(item, dict | list)
        ]
    return bool(level)


def _strings(data: bytes) -> int:
    """Return how many quotation marks of a text begin or end a string."""
    if b"\\" not in data:
        return data.count(b'"')
    data = data.replace(b"\\\\", b"")
    return data.count(b'"') - data.count(b'\\"')


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = Counter(name for name, _ in pairs)
        raise ValueError(f"an object has several members of the name {max(names, key=names.__getitem__)!a}")
    return found


def _bounded_int(digits: str) -> int:
    if len(digits.removeprefix("-")) > MAX_DIGITS:
        raise ValueError(f"an integer has {len(digits)} digits, and at most {MAX_DIGITS} are accepted; send it as text")
    return _exact_int(digits)


def _exact_int(digits: str) -> int:
    # Decimal, as int() refuses more than 4,300 digits.
    return int(digits) if len(digits) < 4000 else int(Decimal(digits))


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is not a finite number")
    return value


def _refuse_what_is_not_json(value: object, path: tuple[str, ...]) -> None:
    """Walk the value and raise for the first thing that is not JSON; return if all is."""
    if len(path) == _MAX_DEPTH and isinstance(value, dict | list | tuple):
        _refuse(path[:8], f"nested more than {_MAX_DEPTH} levels deep below here, or contains itself")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                _refuse(path, f"the key {key!r} is of type {type(key).__name__}; keys must be text")
            if not _is_utf8(key):
                _refuse(path, f"the key {key!a} holds a lone surrogate, which UTF-8 cannot carry")
            _refuse_what_is_not_json(item, (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _refuse_what_is_not_json(item, (*path, str(index)))
    elif isinstance(value, str):
        if not _is_utf8(value):
            _refuse(path, "the text holds a lone surrogate, which UTF-8 cannot carry")
    elif isinstance(value, float):
        if not math.isfinite(value):
            _refuse(path, f"{value!r} is not a JSON number")
    elif value is not None and not isinstance(value, int):
        _refuse(path, f"a value of type {type(value).__name__} is not JSON")


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(path: tuple[str, ...], why: str) -> NoReturn:
    pointer = "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)
    where = f"at {pointer.encode('ascii', 'backslashreplace').decode()}" if pointer else "at the top"
    raise InvalidInput(f"not JSON {where}: {why}")
