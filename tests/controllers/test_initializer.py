"""All controllers exist, and get what they need."""

from __future__ import annotations

from importlib import import_module

import pytest

from kas import controllers
from kas.meta.inject import wants

EVERY = {**controllers.ALWAYS, **controllers.BY_CHOICE}


@pytest.mark.parametrize("name", EVERY)
def test_each_controller_has_its_name_and_gets_its_arguments(name):
    module, _, cls = EVERY[name].partition(".")
    controller = getattr(import_module(f"kas.controllers.{module}"), cls)
    assert controller.name == name
    assert set(wants(controller)) <= set(controllers.Initializer._fields)
