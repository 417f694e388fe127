"""A delete of an object that is already being deleted."""

import pytest

from kas.registry import deletion
from kas.registry.deletion import Step
from kas.registry.strategy import Context, strategy_of
from kas.types.scheme import BUILTIN

PODS = strategy_of(BUILTIN.resource("", "v1", "pods"))
NOW = "2024-01-02T03:04:05Z"


def dying(deadline, period):
    return {"metadata": {"name": "p", "deletionTimestamp": deadline, "deletionGracePeriodSeconds": period}}


@pytest.mark.parametrize(
    ("deadline", "period", "asked", "want"),
    [
        ("2024-01-02T03:05:00Z", 60, 10, ("2024-01-02T03:04:10Z", 10)),  # begun at 03:04:00
        ("2024-01-02T03:05:00Z", 60, -3, (NOW, 1)),
        ("2024-01-02T03:05:00Z", 60, 4, (NOW, 1)),  # which has passed: the minimum, for the client of the last delete
        ("2024-01-02T03:05:00Z", 60, 5, (NOW, 1)),
        ("2024-01-02T03:03:00Z", 60, 50, (NOW, 1)),
        ("2024-01-02T03:05:00Z", 60, 0, (NOW, 0)),
        ("2024-01-02T03:04:04Z", -1, 0, (NOW, 0)),
    ],
)
def test_a_shorter_grace_period_does_not_end_in_the_past(deadline, period, asked, want):
    obj, options = dying(deadline, period), {"gracePeriodSeconds": asked}
    assert not deletion.pending(PODS.resource, obj, options)
    step, graceful = deletion.begin(PODS, Context(now=NOW), obj, options)
    meta = obj["metadata"]
    assert (meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"]) == want
    assert (step, graceful) == (Step.REMOVE if asked == 0 else Step.MARK, True)


@pytest.mark.parametrize(
    ("period", "asked", "waits"), [(-1, -1, True), (-1, 1, True), (-1, 0, False), (2, 1, False), (2, 2, True), (0, 1, False)]
)
def test_which_objects_wait_for_their_grace_period(period, asked, waits):
    assert deletion.pending(PODS.resource, dying(NOW, period), {"gracePeriodSeconds": asked}) is waits
