"""Times and durations: Go's parsing, and agreement of the compiled and the plain code."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kas.meta import scalars
from kas.types.scheme import BUILTIN, DecodeError, decode, decode_protobuf, encode_json, encode_protobuf

LEASE = BUILTIN.type("io.k8s.api.coordination.v1.LeaseSpec")
META = BUILTIN.type("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
moments = st.datetimes(datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31))


@given(moments)
def test_seconds_agree_with_the_calendar(moment):
    moment = moment.replace(microsecond=0)
    text = moment.isoformat() + "Z"
    seconds = int((moment - datetime.datetime(1970, 1, 1)).total_seconds())
    assert scalars.parse_time(text) == (seconds, 0)
    assert scalars.format_time(seconds) == text


@given(moments)
def test_times_survive_protobuf(moment):
    text = moment.replace(microsecond=0).isoformat() + "Z"
    micro = moment.isoformat(timespec="microseconds") + "Z"
    for type, field, value in ((META, "deletionTimestamp", text), (LEASE, "renewTime", micro)):
        typed, _ = decode(type, {field: value})
        if value.startswith("0001-01-01T00:00:00"):
            continue
        assert typed[field] == value
        assert decode_protobuf(type, encode_protobuf(type, typed)) == typed


def test_the_zero_time_is_null():
    condition = BUILTIN.type("core.v1.PodCondition")
    typed, _ = decode(condition, {"type": "t", "status": "s", "lastProbeTime": "0001-01-01T00:00:00Z"})
    assert "lastProbeTime" not in typed
    assert encode_json(condition, typed) == b'{"type":"t","status":"s","lastProbeTime":null,"lastTransitionTime":null}'


def test_offsets_fractions_and_single_digit_hours_are_read():
    assert scalars.canonical_time("2024-01-02T3:04:05,999+01:30") == "2024-01-02T01:34:05Z"


@given(st.text(max_size=25) | st.from_regex(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{0,12}Z?\Z"))
def test_any_text_is_a_time_or_refused(text):
    for parse in (scalars.parse_time, scalars.parse_micro_time, scalars.parse_duration):
        try:
            parse(text)
        except DecodeError as e:
            assert str(e)


@given(st.integers(-(2**63) + 1, 2**63 - 1))
def test_durations_survive(nanoseconds):
    assert scalars.parse_duration(scalars.format_duration(nanoseconds)) == nanoseconds


@pytest.mark.parametrize(("text", "shown"), [("90m", "1h30m0s"), ("1.5ms", "1.5ms"), ("-2us", "-2µs"), ("0", "0s"), ("61s", "1m1s")])
def test_durations_are_printed_as_by_go(text, shown):
    assert scalars.canonical_duration(text) == shown


def test_times_at_the_edges():
    assert scalars.canonical_time("0000-01-01T00:00:00+02:00") == "-0001-12-31T22:00:00Z"
    with pytest.raises(DecodeError, match="time zone offset minute out of range"):
        scalars.canonical_time("2024-01-02T03:04:05+25:61")
    assert scalars.parse_duration("000000000000000000000001s") == 10**9


@pytest.mark.parametrize(
    "text, said", [("9223372036854775809", "invalid"), ("15ns19223372036854775807", "invalid"), ("12", "missing unit in")]
)
def test_overflowing_digits_are_reported_before_the_unit(text, said):
    with pytest.raises(ValueError, match=f'^time: {said} duration "{text}"$'):
        scalars.parse_duration(text)


@pytest.mark.parametrize("text", ["92233720368547758080", "92233720368547758080x", "+18446744073709551616 ", "-99999999999999999999."])
def test_overflow_is_reported_before_an_invalid_digit(text):
    with pytest.raises(DecodeError, match=r"value out of range$"):
        scalars.int64(text)


def test_a_megabyte_of_durations_takes_linear_time():
    assert scalars.parse_duration("0h" * 500_000) == 0
    with pytest.raises(DecodeError, match="missing unit"):
        scalars.parse_duration("0h" * 500_000 + "1")
