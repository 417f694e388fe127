"""JSON paths of printer columns: the same results as client-go's ``jsonpath`` 0.36.4."""

from __future__ import annotations

import pytest

from kas.apiextensions.jsonpath import Path, PathError

DATA = {"a": "x", "b": [1, 2, {"c": "y"}], "c": {"d": None}}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("['a' , 'b']", ["x", [1, 2, {"c": "y"}]]), ("['a','a']", ["x", "x"]), (".b[ 0 ,1 ]", [1, 2]), (".b[-1].c", ["y"]),
        (".c.d", [None]), (".zz", []), (".b[0:2]", [1, 2]), ("..d", [None]),
    ],
)  # fmt: skip
def test_results(path, found):
    assert Path(path)(DATA) == found


@pytest.mark.parametrize("path", [".b[ 0]", ".b[0 ]", "[ 'a']", "['a' ]", ".b[", ".b[x]"])
def test_invalid_paths(path):
    with pytest.raises(PathError):
        Path(path)
