"""Prerequisites of tests that may be missing: a program, a library, recorded answers.

A missing prerequisite skips the test with the reason. In CI (``CI`` is set) it fails the test, because a run that tests nothing must not
look like one that passed.
"""

from __future__ import annotations

import importlib
import ipaddress
import os
import shutil
import socket
from types import ModuleType
from typing import NoReturn

import pytest

IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")


def give_up(reason: str) -> NoReturn:
    """End the running test, or the module being collected, because something is missing."""
    if IN_CI:
        pytest.fail(f"{reason}: nothing may be missing in CI", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def missing(reason: str) -> pytest.MarkDecorator:
    """A mark for a parameter set that stands for tests that cannot be generated."""
    return pytest.mark.missing(reason)


def program(name: str, package: str) -> str:
    """Returns the path of a program on PATH; ``package`` is where it comes from."""
    return shutil.which(name) or give_up(f"no {name} on PATH ({package})")


def module(name: str) -> ModuleType:
    """Returns an importable module of the ``test`` extra."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        give_up(f"{name} cannot be imported ({e}); it is in the test extra")


def global_address() -> str:
    """Returns an address of this host that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))  # sends nothing
            found = s.getsockname()[0]
        except OSError:
            found = "127.0.0.1"
    if ipaddress.ip_address(found).is_loopback:
        give_up("this host has only loopback addresses")
    return found
