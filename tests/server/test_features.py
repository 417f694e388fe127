"""Feature gates: names, locks, classes."""

from __future__ import annotations

import pytest

from kas.features import enabled


def test_defaults_are_upstreams():
    on = enabled([])
    assert "APIServerIdentity" in on and "APIServingWithRoutine" not in on


def test_one_can_be_switched_and_classes_too():
    assert "GenericWorkload" in enabled(["GenericWorkload=true"])
    assert "GenericWorkload" in enabled(["AllAlpha=true"])
    assert "GenericWorkload" not in enabled(["GenericWorkload=false", "AllAlpha=true"])


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["Nope=true"], "unrecognized feature gate: Nope"),
        (["APIServerTracing=false"], "feature is locked to True"),
        (["APIServerTracing"], "write Name=true"),
    ],
)
def test_what_cannot_be_is_refused(given, says):
    with pytest.raises(ValueError, match=says):
        enabled(given)
