"""PEM blocks as Go's ``pem.Decode`` finds them, in time linear in the data."""

from __future__ import annotations

import pytest

from kas.meta.pem import pem_blocks

BLOCK = "-----BEGIN A-----\nQUJD\n-----END A-----\n"
FOUND = ("A", False, b"ABC")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", []), ("QUJD", []), (BLOCK, [FOUND]), (BLOCK * 2, [FOUND] * 2), (BLOCK[:-1], [FOUND]), ("x\n" + BLOCK + "y", [FOUND]),
        (BLOCK.replace("\n", "\r\n"), [FOUND]), (BLOCK.replace("-\n", "- \t\n"), [FOUND]), (BLOCK.replace("UJ", " U\nJ "), [FOUND]),
        ("x" + BLOCK, []), (" " + BLOCK, []), (BLOCK[:-1] + "x\n", []), (BLOCK.replace("END A", "END B"), []),
        (BLOCK.replace("QUJD\n", "QUJD"), []), (BLOCK.replace("QUJD", "QUJ"), []), (BLOCK.replace("QUJD", "QU!D"), []),
        (BLOCK.replace("QUJD\n", ""), [("A", False, b"")]),
        (BLOCK.replace("QUJD", "a: b\nc:\n\nQUJD"), [("A", True, b"ABC")]),
        (BLOCK.replace("QUJD", "a: b"), []),
        ("-----BEGIN A-----\nQUJD\n" + BLOCK, [FOUND]), ("-----BEGIN A----\n" + BLOCK, [FOUND]),
        ("-----BEGIN B-----\nQUJD\n-----END A-----\n" + BLOCK, [FOUND]), ("-----BEGIN A-----\n" * 3 + BLOCK, [FOUND]),
        (BLOCK.replace(" A-", " A b\u00e9-"), [("A b\u00e9", False, b"ABC")]),
    ],
)  # fmt: skip
def test_blocks(text, found):
    assert list(pem_blocks(text.encode())) == found


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN A-----\n" * 60_000, "-----BEGIN A-----\na:b\n" * 50_000, "-----BEGIN A-----\n" + "a:b\n" * 250_000,
        "-----BEGIN A-----\n" * 30_000 + "-----END A-----" + " " * 500_000 + "x\n",
        "-----BEGIN A-----\nQUJD\n" * 45_000 + "-----END B-----\n",
        "".join(f"-----BEGIN A{i}-----\n-----END A{i + 1}-----\n" for i in range(20_000)),
    ],
    ids=["begun", "with headers", "headers", "a long last line", "of another name", "crossed"],
)  # fmt: skip
def test_a_megabyte_of_invalid_blocks_takes_linear_time(text):
    """Searching for each block's end again would exceed the time limit."""
    assert list(pem_blocks(text.encode())) == []
