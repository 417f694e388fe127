"""Builds the compiled units; everything else of the package is in pyproject.toml.

Each ``.pyx`` below ``kas/`` is one unit, lying in the layer it belongs to; its parts are the ``.pxi`` files in a folder beside it.
``KAS_UNITS=kas._fastpath,kas.store._engine`` builds only the units named; ``KAS_DEBUG_BUILD=1`` switches bounds checks back on.
"""

import multiprocessing
import os
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

SOURCES = sorted(glob("kas/**/*.pyx", recursive=True))
wanted = os.environ.get("KAS_UNITS")
debug = os.environ.get("KAS_DEBUG_BUILD") == "1"

directives = {
    "language_level": 3,
    "boundscheck": debug,
    "wraparound": False,
    "initializedcheck": debug,
    "cdivision": True,
    "freethreading_compatible": False,
}

extensions = [
    Extension(
        name,
        [source],
        depends=glob("kas/**/*.px[id]", recursive=True),
        extra_compile_args=["-O2", "-g0", "-std=gnu11", "-Wno-unreachable-code"],
    )
    for source in SOURCES
    for name in [source.removesuffix(".pyx").replace(os.sep, ".")]
    if not wanted or name in wanted.split(",")
]


def processes(wanted: int) -> int:
    """How many processes translate side by side: none but this one where there are no semaphores (a container without /dev/shm)."""
    try:
        multiprocessing.Lock()
    except (ImportError, OSError):
        return 0
    return wanted


at_once = min(2, os.cpu_count() or 1)
modules = cythonize(extensions, compiler_directives=directives, nthreads=processes(at_once))
# The longest first, so that the last to be compiled is a short one.
modules.sort(key=lambda unit: os.path.getsize(unit.sources[0]), reverse=True)

setup(
    ext_modules=modules,
    options={"build_ext": {"parallel": at_once}},
)
