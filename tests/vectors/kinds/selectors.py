"""Label and field selectors."""

from kas.api import selectors
from kas.api.selectors import SelectorError


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
    assert [got.matches(s) for s in given["sets"]] == want["matches"]
    if kind == "label":
        assert got.empty == want["empty"]
        assert [{"key": r.key, "op": r.op, "values": list(r.values)} for r in got.requirements] == want["requirements"]
    elif kind == "field":
        assert got.empty == want["empty"]
        assert [{"field": t.key, "op": t.op, "value": t.value} for t in got.requirements] == want["requirements"]
        for key, value in want["requiresExactMatch"].items():
            assert got.requires_exact_match(key) == value
    else:
        assert selectors.format_label_selector(given["labelSelector"]) == want["format"]
