"""``python -m kas`` is ``kas``."""

from kas.cli import main

main()
