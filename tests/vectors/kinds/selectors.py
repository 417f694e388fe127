"""Label and field selectors: parsed as in requests, matched by the store as it lists."""

import atexit
import functools
import tempfile

from kas.endpoints.options import EVERYTHING
from kas.endpoints.selection import matcher_of
from kas.meta import selectors
from kas.meta.selectors import SelectorError
from kas.store import Op, build_record, open_store


@functools.cache
def store():
    """A store for this module alone."""
    directory = tempfile.TemporaryDirectory()
    opened = open_store(directory.name, sync=False)
    atexit.register(lambda: (opened.close(), directory.cleanup()))
    return opened


def listed(options, sets: list[dict], name: str) -> list[bool]:
    """The objects that a list with these options has; ``name`` says whether the sets are their labels or fields."""
    prefix = f"/registry/{store().revision}/"
    keys = [f"{prefix}{i:04}" for i in range(len(sets))]
    for key, one in zip(keys, sets, strict=True):
        store().commit_now(Op(key, build_record(b'{"metadata":{', b"}}", **{name: one})))
    matcher = matcher_of(options)
    found = {record.key for record in store().range(prefix, matcher=matcher).records}
    assert found == {key for key in keys if matcher is None or matcher.matches(store().get(key))}, "a list and a watch differ"
    return [key in found for key in keys]


def check(vector, group):
    given, want = vector["in"], vector["out"]
    kind = vector["id"].split("/")[1]
    try:
        if kind == "label":
            got = selectors.parse_label_selector(given["selector"])
        elif kind == "field":
            got = selectors.parse_field_selector(given["selector"])
        else:
            got = selectors.from_label_selector(given["labelSelector"])
    except SelectorError as e:
        assert str(e) == want["error"]
        if "format" in want and want["format"] is not None:
            assert selectors.format_label_selector(given["labelSelector"]) == want["format"]
        return
    assert want["error"] is None
    assert str(got) == want["string"]
    if kind == "label":
        assert listed(EVERYTHING._replace(label_selector=got), given["sets"], "labels") == want["matches"]
        assert got.empty == want["empty"]
        assert [{"key": r.key, "op": r.op, "values": list(r.values)} for r in got.requirements] == want["requirements"]
    elif kind == "field":
        assert listed(EVERYTHING._replace(field_selector=got), given["sets"], "fields") == want["matches"]
        assert got.empty == want["empty"]
        assert [{"field": t.key, "op": t.op, "value": t.value} for t in got.requirements] == want["requirements"]
        for key, value in want["requiresExactMatch"].items():
            assert got.requires_exact_match(key) == value
    else:
        # Selectors inside objects (of a PodDisruptionBudget, say) are matched one object at a time.
        assert [got.matches(s) for s in given["sets"]] == want["matches"]
        assert selectors.format_label_selector(given["labelSelector"]) == want["format"]
