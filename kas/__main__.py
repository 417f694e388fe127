"""``python -m kas`` is the same as ``kas``."""

from kas.cli import main

main()
