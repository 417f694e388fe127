"""Continue tokens: their contents, and invalid ones."""

from kas.store import continuetoken


def check(vector, group):
    given, want = vector["in"], vector["out"]
    try:
        if "key" in given:
            got = {"error": None, "token": continuetoken.encode(given["key"], given["prefix"], given["resourceVersion"])}
        else:
            key, revision = continuetoken.decode(given["token"], given["prefix"])
            got = {"error": None, "key": key, "resourceVersion": revision}
    except continuetoken.ContinueError as e:
        got = {"error": str(e), "token": ""} if "key" in given else {"error": str(e), "key": "", "resourceVersion": 0}
    assert got == want
