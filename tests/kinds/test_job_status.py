"""Status writes of Jobs: a change that contradicts itself, the spec or the old status is refused."""

from __future__ import annotations

import pytest

from tests.kinds.helpers import create, refused, update

JOBS = "batch/v1/jobs"
START, END = "2024-01-01T00:00:00Z", "2024-01-01T01:00:00Z"
TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i:1"}]}}
INDEXED = {"completionMode": "Indexed", "completions": 5, "parallelism": 2, "backoffLimitPerIndex": 1}


def conditions(*kinds: str) -> list[dict[str, str]]:
    """``"Complete"`` is true, ``"!Complete"`` is false."""
    return [{"type": k.lstrip("!"), "status": "False" if k.startswith("!") else "True"} for k in kinds]


DONE = {"startTime": START, "completionTime": END, "conditions": conditions("SuccessCriteriaMet", "Complete")}
LOST = {"startTime": START, "conditions": conditions("FailureTarget", "Failed")}


def job(status=None, **spec):
    stored, _ = create(JOBS, {"metadata": {"name": "j"}, "spec": {"template": TEMPLATE, **spec}})
    return {**stored, "status": status} if status else stored


def write(old, status):
    return update(JOBS, old, lambda obj: obj.update(status=status), "status")


@pytest.mark.parametrize(
    ("spec", "before", "now"),
    [
        ({}, {}, DONE),
        ({}, {}, LOST),
        ({"suspend": True, "completions": 0}, {}, {**DONE, "startTime": None}),
        (INDEXED, {}, {"completedIndexes": "0,2-3", "failedIndexes": "1,4"}),
        # already wrong, and not changed by this write
        ({}, {"completionTime": END}, {"completionTime": END, "active": 1}),
        ({}, {"failedIndexes": "1"}, {"failedIndexes": "1", "active": 1}),
        ({"suspend": True}, {"startTime": START}, {}),
        ({}, {"startTime": START, "conditions": conditions("Suspended")}, {"startTime": END, "conditions": conditions("!Suspended")}),
        ({"completionMode": "Indexed", "completions": 2, "parallelism": 2}, {"succeeded": 2}, {"succeeded": 1}),
    ],
)  # fmt: skip
def test_a_valid_status_is_accepted(spec, before, now):
    got, _ = write(job(before, **spec), now)
    assert got["status"].get("completionTime") == now.get("completionTime")


MET = "cannot set {}=True condition without the {}=true condition"


@pytest.mark.parametrize(
    ("spec", "before", "now", "want"),
    [
        ({}, {}, {"active": -1}, ("status.active", "must be greater than or equal to 0")),
        ({}, {}, {"uncountedTerminatedPods": {"succeeded": ["a", ""], "failed": ["a"]}},
         ("status.uncountedTerminatedPods.succeeded[1]", "must not be empty")),
        ({}, {}, {"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["a"]}},
         ("status.uncountedTerminatedPods.failed[0]", 'Duplicate value: "a"')),
        ({}, {}, {**DONE, "completionTime": None}, ("status.completionTime", "completionTime is required for Complete jobs")),
        ({}, {}, {"completionTime": END}, ("status.completionTime", "cannot set completionTime when there is no Complete=True condition")),
        ({}, {}, {**DONE, "startTime": END, "completionTime": START}, ("status.completionTime", "must be equal to or after `startTime`")),
        ({}, {}, {**DONE, "startTime": None}, ("status.startTime", "startTime is required for finished job")),
        ({}, {}, {**DONE, "active": 1}, ("status.active", "active>0 is invalid for finished job")),
        ({}, {}, {**DONE, "terminating": 1}, ("status.terminating", "terminating>0 is invalid for finished job")),
        ({}, {}, {**DONE, "uncountedTerminatedPods": {"failed": ["a"]}},
         ("status.uncountedTerminatedPods", "must be empty for finished job")),
        ({}, {}, {"ready": 2, "active": 1}, ("status.ready", "cannot set more ready pods than active")),
        ({}, {}, {**DONE, "conditions": conditions("Complete")}, ("status.conditions", MET.format("Complete", "SuccessCriteriaMet"))),
        ({}, {}, {"startTime": START, "conditions": conditions("Failed")}, ("status.conditions", MET.format("Failed", "FailureTarget"))),
        ({}, {}, {"conditions": conditions("FailureTarget", "SuccessCriteriaMet")},
         ("status.conditions", "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")),
        ({}, DONE, {**DONE, "conditions": conditions("SuccessCriteriaMet")},
         ("status.conditions", "cannot disable the terminal Complete=True condition")),
        ({}, DONE, {**DONE, "completionTime": "2024-01-01T02:00:00Z"}, ("status.completionTime", "field is immutable")),
        ({}, {"failed": 2}, {"failed": 1}, ("status.failed", "cannot decrease the failed counter")),
        ({}, {"succeeded": 2}, {}, ("status.succeeded", "cannot decrease the succeeded counter")),
        ({}, {"startTime": START}, {}, ("status.startTime", "Invalid value: null: field is immutable for unsuspended job once set")),
        ({}, {"startTime": START}, {"startTime": END},
         ("status.startTime", f'Invalid value: "{END}": field is immutable for unsuspended job once set')),
        ({}, {}, {"completedIndexes": "0"},
         ("status.completedIndexes", "cannot set non-empty completedIndexes when non-indexed completion mode")),
        ({}, {}, {"failedIndexes": "0"}, ("status.failedIndexes", "cannot set non-null failedIndexes when backoffLimitPerIndex is null")),
        (INDEXED, {}, {"completedIndexes": "0,5"}, ("status.completedIndexes", "error parsing completedIndexes")),
        (INDEXED, {}, {"completedIndexes": "0-2,4", "failedIndexes": "2-3"},
         ("status.failedIndexes", "failedIndexes and completedIndexes overlap at index: 2")),
    ],
)  # fmt: skip
def test_a_status_is_refused(spec, before, now, want):
    found = refused(write, job(before, **spec), now)
    assert any(where == want[0] and want[1] in text for where, text in found), found
