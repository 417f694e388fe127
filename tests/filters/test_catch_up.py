"""Derived state is brought up to date before it is asked, and on every request."""

from __future__ import annotations

import pytest

from kas.filters.catch_up import catch_up
from tests.filters.requests import request
from tests.filters.serving import Harness


def test_every_request_catches_up_once():
    calls = []
    f = catch_up(lambda: calls.append(1))
    for _ in range(3):
        assert f.before(request()) is None
    assert len(calls) == 3


def test_it_stands_before_whoever_asks_the_derived_state():
    names = Harness().chain.names
    assert all(names.index("catch_up") < names.index(name) for name in ("authentication", "impersonation", "authorization"))


def test_what_cannot_be_brought_up_to_date_is_not_served():
    """A store that does not answer makes the request fail; old roles are not used instead."""

    def fails():
        raise OSError("disk")

    with pytest.raises(OSError):
        catch_up(fails).before(request())
