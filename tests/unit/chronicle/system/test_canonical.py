"""Canonical JSON against an independent, slow writer that follows RFC 8785's text."""

from __future__ import annotations

import enum
import json
import math
import struct
import uuid
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chronicle.canonical import decode, decode_input, encode, encode_input
from chronicle.errors import InvalidInput

_ESCAPES = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r", 34: '\\"', 92: "\\\\"}


def slow_text(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(ord(c)) or (f"\\u{ord(c):04x}" if ord(c) < 32 else c) for c in text) + '"'


def slow_number(value: float) -> str:
    """ECMA-262 6.1.6.1.20: find the least k digits s and exponent n by search, then lay them out."""
    if value == 0:
        return "0"
    if value < 0:
        return "-" + slow_number(-value)
    exact = Fraction(value)
    for k in range(1, 18):
        mantissa, exponent = f"{value:.{k - 1}e}".split("e")
        nearest, n = int(mantissa.replace(".", "")), int(exponent) + 1
        good = [s for s in (nearest - 1, nearest, nearest + 1) if float(f"{s}e{n - k}") == value]
        if good:
            digits = str(min(good, key=lambda s: (abs(s * Fraction(10) ** (n - k) - exact), s % 2)))
            break
    if k <= n <= 21:
        return digits + "0" * (n - k)
    if 0 < n <= 21:
        return digits[:n] + "." + digits[n:]
    if -6 < n <= 0:
        return "0." + "0" * -n + digits
    sign = "+" if n > 0 else "-"
    return digits[0] + ("." + digits[1:] if k > 1 else "") + "e" + sign + str(abs(n - 1))


def slow(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return slow_number(value)
        case str():
            return slow_text(value)
        case list() | tuple():
            return "[" + ",".join(map(slow, value)) + "]"
        case dict():
            keys = sorted(value, key=lambda key: list(struct.unpack(f">{len(k := key.encode('utf-16-be')) // 2}H", k)))
            return "{" + ",".join(slow_text(key) + ":" + slow(value[key]) for key in keys) + "}"
    raise TypeError(value)


floats = st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | st.integers() | st.integers(2**60, 2**70) | floats | st.text()
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=30,
)


@given(values)
@settings(max_examples=500)
def test_same_bytes_as_the_slow_writer(value: object) -> None:
    assert encode(value) == slow(value).encode()


@given(st.integers(0, 2**64 - 1))
@settings(max_examples=1000)
@example(0x4340000000000001)
@example(0x44B52D02C7E14AF6)
@example(0x444B1AE4D6E2EF50)
@example(0x3EB0C6F7A0B5ED8D)
@example(1)
def test_any_double(bits: int) -> None:
    value = struct.unpack(">d", bits.to_bytes(8, "big"))[0]
    if math.isfinite(value):
        text = encode([value])[1:-1].decode()
        assert text == slow_number(value)
        assert float(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [  # RFC 8785, appendix B, and the edges of the layouts
        (-0.0, "0"),
        (5e-324, "5e-324"),
        (-1.7976931348623157e308, "-1.7976931348623157e+308"),
        (9007199254740992.0, "9007199254740992"),
        (295147905179352830000.0, "295147905179352830000"),
        (9.999999999999997e22, "9.999999999999997e+22"),
        (1e23, "1e+23"),
        (999999999999999900000.0, "999999999999999900000"),
        (1e21, "1e+21"),
        (333333333.33333329, "333333333.3333333"),
        (0.0000033333333333333333, "0.0000033333333333333333"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1424953923781206.2, "1424953923781206.2"),
        (10**400, "1" + "0" * 400),
        (-(2**64), "-18446744073709551616"),
    ],
)
def test_numbers_of_the_rfc(value: float, text: str) -> None:
    assert encode(value) == text.encode()


def test_keys_sort_by_utf16() -> None:
    keys = ["\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\u0080", "\u00f6"]
    in_order = ["\r", "1", "\u0080", "\u00f6", "\u20ac", "\U0001f600", "\ufb33"]
    assert list(json.loads(encode(dict.fromkeys(keys)))) == in_order


def same(a: object, b: object) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):  # a float is written as ECMAScript does; reading its text gives the same double
        return float(b) == a  # type: ignore[arg-type]
    return type(a) is type(b) and a == b


@given(values)
def test_reads_back(value: object) -> None:
    data = encode(value)
    assert same(value, decode(data))
    assert encode(decode(data)) == data


def test_integers_of_any_size() -> None:
    for value in (2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**19, -(10**18), 7**20_000, -(7**20_000)):
        assert decode(encode({"n": value, "text": "9" * 40})) == {"n": value, "text": "9" * 40}
    assert Decimal(encode(7**20_000).decode()) == Fraction(7**20_000)


class _Text(str):
    __slots__ = ()


class _Level(enum.IntEnum):
    HIGH = 3


class _Colour(enum.StrEnum):
    RED = "red"


class _List(list[object]):
    pass


class _Dict(dict[str, object]):
    pass


def test_subclasses_are_taken_by_their_value() -> None:
    value = _Dict({_Text("k"): _List([_Level.HIGH, _Colour.RED, _Text("é"), (True,)]), "d": _Dict(), "l": _List()})
    assert encode(value) == '{"d":{},"k":[3,"red","é",[true]],"l":[]}'.encode()


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (math.nan, "at the top: nan"),
        ({"a": [1, math.inf]}, "at /a/1: inf"),
        ({"a/b": {"~": b"x"}}, "at /a~1b/~0: a value of type bytes"),
        ({"a": {1: 2}}, "at /a: the key 1 is of type int"),
        ({"a": {None: 2}}, "keys must be text"),
        (["ok", "\ud800"], "at /1: the text holds a lone surrogate"),
        ({"k": {"\udfff": 1}}, "at /k: the key '\\udfff' holds a lone surrogate"),
        ({"é": ["\ud800"]}, "at /\\xe9/0: the text holds a lone surrogate"),
        ([uuid.UUID(int=1)], "at /0: a value of type UUID"),
        ({"s": {1}}, "at /s: a value of type set"),
        ([Decimal(1)], "type Decimal"),
        ([enum.Enum("E", "A").A], "at /0: a value of type E"),  # type: ignore[attr-defined]
    ],
)
def test_refused_with_its_path(value: object, where: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        encode(value)
    assert where in str(caught.value)


def test_what_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append({"again": loop})
    with pytest.raises(InvalidInput, match="contains itself"):
        encode(loop)
    deep: object = None
    for _ in range(200):
        deep = [deep]
    assert decode(encode(deep)) == deep


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nul",
        b'{"a":NaN}',
        b"[1,]",
        b'"\\ud800"',
        b"\xff",
        b"1e999",
        b"[1] 2",
        b"-",
        b"1" * 30 + b"e999",
        b"[" + b"1" * 30 + b",NaN]",
        b"[" + b"1" * 30 + b',"\\ud800"]',
        b"1" * 30 + b"\xff",
    ],
)
def test_what_is_not_json_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not JSON"):
        decode(data)


@pytest.mark.parametrize("brackets", [("[", "]"), ('{"a":', "}")])
def test_depth_is_limited_where_it_is_written_and_where_it_comes_from_outside(brackets: tuple[str, str]) -> None:
    def nested(levels: int, inner: str = "") -> bytes:
        begin, end = brackets
        return (begin * (levels - 1) + (f"[{inner}]" if begin == "[" else f"{{{inner}}}") + end * (levels - 1)).encode()

    assert decode_input(nested(100)) == decode(nested(100))
    assert encode_input(decode(nested(100))) == encode(decode(nested(100)))
    for levels in (101, 200, 500):
        with pytest.raises(InvalidInput, match="nested more than 100 levels"):
            decode_input(nested(levels))
    with pytest.raises(InvalidInput, match="nested more than 100 levels"):
        encode_input(decode(nested(101)))
    assert encode(decode(nested(200))) == nested(200)
    for levels in (201, 202, 260):
        with pytest.raises(InvalidInput, match="more than 200 levels"):
            encode(decode(nested(levels)))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a":1,"b":2,"a":1}', "several members of the name 'a'"),
        (b'[{"a\\\\":"\\"","\\u0061\\\\":1}]', "several members of the name"),
        (b'{"a":1,"a":"x\\u0022:"}', "several members of the name 'a'"),
        (b'{"a":{"b":' + b"1" * 30 + b',"b":2}}', "several members of the name 'b'"),
        (b"[" + b"9" * 4301 + b"]", "an integer has 4301 digits, and at most 4300"),
        (b"[-" + b"9" * 5000 + b"]", "send it as text"),
    ],
)
def test_what_later_readers_would_not_read_alike_is_refused_from_outside(data: bytes, why: str) -> None:
    decode(data)
    with pytest.raises(InvalidInput, match=why):
        decode_input(data)


def test_integers_with_as_many_digits_as_may_be_come_from_outside() -> None:
    for value in (10**4299, -(10**4300) + 1, "9" * 5000):
        assert decode_input(encode_input([value])) == [value]
    with pytest.raises(InvalidInput, match="4301 digits"):
        encode_input({"n": 10**4300})
