"""What comes in is exact JSON and sane names, or is refused at the entrance with the reason (field reports 92, 113)."""

from __future__ import annotations

import json
from collections import OrderedDict
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import uuid4

import pytest

from weft_tasks.errors import InvalidInput
from weft_tasks.store.payloads import (
    LONGEST_DURATION,
    MAX_ID_LENGTH,
    checked_duration,
    checked_name,
    decode,
    encode,
    say_the_same,
)

LIMIT = 256 * 1024


class Colour(Enum):
    RED = "red"


def encoded(value: object) -> str:
    return encode("payload", value, LIMIT)


def nested(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


# -- payloads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -1,
        2**200,
        0.1,
        -0.0,
        5e-324,
        1.7976931348623157e308,
        "",
        "NUL \x00 inside",
        "lone \ud800 surrogate",
        "🜁 \u202e \ufeff \u2028",
        "e\u0301 is not \u00e9",
        [],
        {},
        {"": None, " ": [1, [2, {"3": 4}]]},
        {"NaN": "NaN"},
    ],
    ids=ascii,
)
def test_what_is_json_comes_back_as_it_went_in(value: object) -> None:
    text = encoded(value)
    assert decode(text) == value
    assert type(decode(text)) is type(value)
    assert text.isascii()


def test_the_absence_of_a_text_is_none() -> None:
    assert decode(None) is None


def test_a_tuple_comes_back_as_a_list_and_a_subclass_as_what_it_is_at_heart() -> None:
    assert decode(encoded((1, (2,)))) == [1, [2]]
    assert decode(encoded(OrderedDict(b=1, a=2))) == {"b": 1, "a": 2}


def test_the_keys_of_a_dict_keep_their_order() -> None:
    assert list(decode(encoded({"z": 1, "a": 2, "m": 3}))) == ["z", "a", "m"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_is_refused(number: float) -> None:
    for value in (number, [number], {"a": {"b": number}}):
        with pytest.raises(InvalidInput, match="payload is not JSON"):
            encoded(value)


@pytest.mark.parametrize(
    "value",
    [
        {1, 2},
        frozenset(),
        b"bytes",
        datetime(2026, 1, 1, tzinfo=UTC),
        timedelta(1),
        Decimal("1.5"),
        uuid4(),
        Colour.RED,
        object(),
        range(3),
        1j,
        iter([]),
        InvalidInput,
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_that_json_does_not_have_is_refused_by_its_type_however_deep(value: object) -> None:
    for holder in (value, [[value]], {"a": [value]}):
        with pytest.raises(InvalidInput, match=f"holds a {type(value).__name__}"):
            encoded(holder)


@pytest.mark.parametrize("key", [1, 1.5, True, None, ("a",), b"a"], ids=repr)
def test_a_key_that_json_would_turn_into_a_string_in_silence_is_refused(key: object) -> None:
    with pytest.raises(InvalidInput, match="key that is not a string"):
        encoded([{"ok": {key: 1}}])


def test_a_value_nested_too_deeply_is_refused_and_not_a_crash() -> None:
    with pytest.raises(InvalidInput, match="nested too deeply"):
        encoded(nested(100_000))


def test_a_value_that_holds_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="nested too deeply"):
        encoded(loop)


def test_a_sane_depth_is_accepted_and_comes_back() -> None:
    assert decode(encoded(nested(100))) == nested(100)


def test_an_integer_too_long_to_be_written_is_refused() -> None:
    with pytest.raises(InvalidInput, match="payload is not JSON"):
        encoded(10**10_000)


def test_the_limit_counts_bytes_of_json_and_the_message_names_both() -> None:
    assert encode("state", "x" * 98, 100) == '"' + "x" * 98 + '"'
    with pytest.raises(InvalidInput, match=r"state has 101 bytes as JSON; the limit is 100 \(weft_payload_limit\)"):
        encode("state", "x" * 99, 100)
    with pytest.raises(InvalidInput, match="has 14 bytes"):
        encode("state", "🜁", 13)


def test_an_invalid_input_is_a_value_error_that_knows_what_it_is_about() -> None:
    with pytest.raises(ValueError, match="result") as refused:
        encode("result", {1}, LIMIT)
    assert isinstance(refused.value, InvalidInput)
    assert refused.value.what == "result"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}, True),
        ([1, 2], [2, 1], False),
        (1, True, False),
        (1, 1.0, False),
        ("1", 1, False),
        (None, {}, False),
        ({"a": 1}, {"a": 1, "b": None}, False),
    ],
)
def test_payloads_say_the_same_by_their_value_and_not_by_the_order_of_keys(
    one: object, other: object, same: bool
) -> None:
    assert say_the_same(json.dumps(one), json.dumps(other)) is same


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "a",
        " ",
        "'; DROP TABLE weft_workflows; --",
        '"',
        "%s",
        "{}",
        ":name",
        "$1",
        "a/b:c",
        "\u202ertl",
        "🜁",
        "x" * MAX_ID_LENGTH,
        "🜁" * MAX_ID_LENGTH,
    ],
    ids=lambda name: ascii(name)[:40],
)
def test_an_odd_name_is_accepted_as_it_is(name: str) -> None:
    assert checked_name("workflow id", name) == name


@pytest.mark.parametrize(
    "name",
    ["nul\x00", "new\nline", "tab\t", "\x1b[31m", "del\x7f", "c1\x85", "lone\ud800", "\udfff"],
    ids=ascii,
)
def test_a_control_character_or_half_a_character_is_refused_and_shown(name: str) -> None:
    with pytest.raises(InvalidInput, match="holds the character") as refused:
        checked_name("workflow id", name)
    assert str(refused.value).isprintable() or name == "lone\ud800" or name == "\udfff"
    str(refused.value).encode("ascii", "backslashreplace")


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("", "must not be empty"),
        ("x" * (MAX_ID_LENGTH + 1), "has 256 characters; the limit is 255"),
        ("x" * 4096, "has 4096 characters"),
        (None, "must be a string, not NoneType"),
        (7, "must be a string, not int"),
        (b"id", "must be a string, not bytes"),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_is_no_name_is_refused_with_the_reason(value: object, problem: str) -> None:
    with pytest.raises(InvalidInput, match=f"signal name {problem}"):
        checked_name("signal name", value)


# -- durations ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (0, timedelta(0)),
        (1.5, timedelta(seconds=1.5)),
        (timedelta(days=30), timedelta(days=30)),
        (LONGEST_DURATION, LONGEST_DURATION),
    ],
)
def test_a_duration_is_seconds_or_a_timedelta(given: object, meant: timedelta) -> None:
    assert checked_duration("timeout", given) == meant


@pytest.mark.parametrize(
    "value",
    [
        -1,
        timedelta(microseconds=-1),
        LONGEST_DURATION + timedelta(microseconds=1),
        timedelta.max,
        float("nan"),
        float("inf"),
        1e300,
        True,
        "30",
        None,
    ],
    ids=repr,
)
def test_what_is_no_duration_or_outlives_every_calendar_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="timeout"):
        checked_duration("timeout", value)
