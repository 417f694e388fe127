"""The files of swagger-ui."""

from __future__ import annotations

import gzip

import pytest

from kas.endpoints.openapi import ui


def test_the_page_loads_only_files_that_are_served():
    page, kind, encoding = ui.file("")
    assert kind.startswith("text/html") and encoding is None
    for name in ("swagger-ui.css", "swagger-ui-bundle.js", "init.js"):
        assert f'"{name}"'.encode() in page and ui.file(name) is not None
    assert b"/openapi/v2" in ui.file("init.js")[0]


@pytest.mark.parametrize("name", sorted(ui.FILES))
def test_every_file_is_served_plain_and_compressed(name):
    plain, kind, encoding = ui.file(name)
    assert plain and kind == ui.FILES[name] and encoding is None
    packed, _, encoding = ui.file(name, accepts_gzip=True)
    assert (gzip.decompress(packed) if encoding else packed) == plain


@pytest.mark.parametrize("name", ["..", "../__init__.py", "LICENSE.gz", "swagger-ui.css.gz", "none"])
def test_nothing_else_is_served(name):
    assert ui.file(name) is None
