"""Command lines: the errors that keep a server from starting, in upstream's words, or that there are none."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from kas.auth.attributes import aggregate
from kas.config.options import read
from kas.preflight import unusable
from tests.vectors.files import lines
from tests.vectors.recipes import write

LACKS = "kas does not have"


@functools.cache
def base() -> dict:
    """The setup whose files every case has."""
    return next(v["in"] for v in lines("security/setups") if v["id"] == "setup/base")


def findings(flags: list[str], directory: str) -> tuple[list[str], list[str]]:
    """The errors of ``kas serve`` about the flags: invalid values, and flags that kas does not have."""
    options, errors = read([flag.replace("${dir}", directory) for flag in flags])
    found = [*errors, *unusable(options)]
    return [text for text in found if LACKS not in text], [text for text in found if LACKS in text]


def check(vector, group):
    given, want = vector["in"], vector["out"]
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory), {**base()["files"], **given["files"]})
        wrong, lacking = findings(given["flags"], directory)
        # Every case has flags of the setup that kas refuses.
        more = set(lacking) - set(findings(base()["flags"], directory)[1])
        # The recording has <dir> for the directory and the program's own name, and took the word "none" for a name.
        said = aggregate(wrong).replace(directory, "<dir>").replace('"kas serve"', '"kube-apiserver"')
    assert said == want.get("error", "").replace("<ns>", "none")
    if want.get("starts"):
        assert more == set()
