"""An evaluation leaves no reference cycles behind. The object that it read may have megabytes of plain text, which do not make the garbage
collector run."""

from __future__ import annotations

import gc

import pytest

from kas import cel
from kas.cel.admission import environment

OBJECT = {"metadata": {"name": "a"}, "data": {f"k{i}": "v" for i in range(50)}}
AGAIN = "object.data.all(k, object.data[k].size() < 100)"


@pytest.mark.parametrize("text, limit, error", [
    (AGAIN, 20, True),  # of a loop iteration that is over
    ("int(object.data.k1) > 0", cel.PER_CALL_LIMIT, True),
    ("int(object.data.k1) > 0 || int(object.data.k2) > 0", cel.PER_CALL_LIMIT, True),
    ("int(object.data.k1) > 0 || object.metadata.name == 'a'", cel.PER_CALL_LIMIT, False),
    ("!(int(object.data.k1) > 0 && object.metadata.name == 'b')", cel.PER_CALL_LIMIT, False),
    ("object.data.exists(k, int(object.data[k]) > 0 || k == 'k7')", cel.PER_CALL_LIMIT, False),
    ("object.data.all(k, int(object.data[k]) > 0)", cel.PER_CALL_LIMIT, True),
    ("object.data.map(k, int(object.data[k])).size() > 0", cel.PER_CALL_LIMIT, True),
    ("int(object.data.k1) + int(object.data.k2) > 0 || true", cel.PER_CALL_LIMIT, False),
    ("'%d'.format([object.data.k1]) == '' || true", cel.PER_CALL_LIMIT, False),
])  # fmt: skip
def test_an_evaluation_leaves_no_garbage(text: str, limit: int, error: bool) -> None:
    program = cel.compile(text, environment(False))

    def evaluate() -> str:
        try:
            program.evaluate({"object": OBJECT}, limit)
        except cel.EvaluationError as e:
            return str(e)
        return ""

    value, _ = program.run({"object": OBJECT}, limit)  # the first evaluation may create objects that stay
    assert isinstance(value, cel.EvaluationError) is error and evaluate() == (str(value) if error else "")
    del value
    gc.collect()
    gc.disable()
    try:
        program.run({"object": OBJECT}, limit)
        evaluate()
        assert gc.collect() == 0
    finally:
        gc.enable()
