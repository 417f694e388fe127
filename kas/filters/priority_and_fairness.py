"""API Priority and Fairness at the door (upstream's ``WithPriorityAndFairness``): a request runs, waits for its turn, or is sent away.

Requests that are long-running by rule are not classified, except watches, which hold seats until they have sent what was there when they
began. Every other answer says which FlowSchema and level the request belonged to.
"""

from __future__ import annotations

from typing import Protocol

from kas.filters.handler import After, Before, Filter, Release


class Gate(Protocol):
    """``kas.flowcontrol``'s: the parts of a filter."""

    begin: Before
    after: After
    release: Release


def priority_and_fairness(gate: Gate) -> Filter:
    """Seats a request, or has it wait; 429 when its queue is full or its time to wait is over."""
    return Filter("priority_and_fairness", gate.begin, gate.after, gate.release)
