"""JSON patches and JSON merge patches."""

import copy

from kas.patch import jsonpatch, mergepatch


def check(vector, group):
    given, want = vector["in"], vector["out"]
    before = copy.deepcopy(given["document"])
    stage = None
    try:
        if "/merge7386" in vector["id"]:
            got = mergepatch.merged(given["document"], mergepatch.decode(given["patchText"].encode()))
        else:
            stage = "decode"
            patch = jsonpatch.decode(given["patchText"].encode())
            stage = "apply"
            got = jsonpatch.apply(given["document"], patch)
    except (jsonpatch.DecodeError, jsonpatch.ApplyError, mergepatch.MergePatchError) as e:
        assert str(e) == want["error"]
        assert stage == want.get("stage")
        return
    assert want["error"] is None
    assert jsonpatch.equal(got, want["result"]) or got == want["result"]
    assert given["document"] == before
