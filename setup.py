"""Builds the compiled units; everything else of the package is in pyproject.toml.

``KAS_UNITS=_fast_types,_fastpath`` builds only the units named; ``KAS_DEBUG_BUILD=1`` switches bounds checks back on.
"""

import os
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

UNITS = sorted(os.path.basename(p)[:-4] for p in glob("kas/_fast*.pyx"))
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
        f"kas.{unit}",
        [f"kas/{unit}.pyx"],
        depends=glob("kas/fast*/*.pxi"),
        extra_compile_args=["-O2", "-g0", "-std=gnu11", "-Wno-unreachable-code"],
    )
    for unit in UNITS
    if not wanted or unit in wanted.split(",")
]

setup(ext_modules=cythonize(extensions, compiler_directives=directives, nthreads=min(2, os.cpu_count() or 1)))
