"""Which Leases of API servers have expired: upstream's table, and times that only Go has."""

import datetime

import pytest

from kas.controllers.identity import _ended

NOW = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize("renewed, seconds, ended", [
    ("2026-01-01T12:00:00.000000Z", 10, False), ("2026-01-01T11:59:00.000000Z", 10, True), (None, 10, True),
    ("2026-01-01T11:59:00.000000Z", None, True), ("9999-12-31T23:59:59.000000Z", 3600, False), ("0000-01-01T00:00:00.000000Z", 10, True),
])  # fmt: skip
def test_expired_leases(renewed, seconds, ended):
    spec = {"renewTime": renewed, "leaseDurationSeconds": seconds}
    assert _ended({key: value for key, value in spec.items() if value is not None}, NOW) is ended
