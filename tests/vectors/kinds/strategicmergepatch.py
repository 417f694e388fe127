"""Strategic merge patches."""

import copy

from kas.patch import strategicmerge
from tests.types.kinds import kind_for


def check(vector, group):
    given, want = vector["in"], vector["out"]
    kind = kind_for(given["original"]["apiVersion"], given["kind"])
    before = copy.deepcopy((given["original"], given["patch"]))
    try:
        got = strategicmerge.apply(given["original"], given["patch"], kind.type)
    except strategicmerge.StrategicMergeError as e:
        assert str(e) == want["error"]
        return
    finally:
        assert (given["original"], given["patch"]) == before
    assert want["error"] is None
    assert got == want["result"]
