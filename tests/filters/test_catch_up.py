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


def test_it_comes_before_users_of_derived_state():
    names = Harness().chain.names
    assert all(names.index("catch_up") < names.index(name) for name in ("authentication", "impersonation", "authorization"))


def test_a_request_fails_if_state_cannot_catch_up():
    """If the store does not answer, old roles are not used instead."""

    def fails():
        raise OSError("disk")

    with pytest.raises(OSError):
        catch_up(fails).before(request())
