"""Makes every generated table of kas: ``make tables``.

    python tools/tables.py [--into DIRECTORY]

Reads the facts in ``tools/facts``, kas' own descriptions in ``tools/texts`` and the recorded answers in ``tests/vectors/data``. Writes
into the checkout, or under the same paths below another directory. The same sources give the same bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import gen_bootstrap
import gen_gated
import gen_gates
import gen_openapi
import gen_printers
import gen_types

ROOT = Path(__file__).resolve().parents[1]
FACTS = ROOT / "tools" / "facts"
ANSWERS = ROOT / "tests" / "vectors" / "data"

TEXTS = ROOT / "tools" / "texts"

TYPES = "kas/types/tables"
PRINTERS = "kas/registry/printing/printers.json"
GATES = "kas/config/tables/gates.json"
GATED = "kas/config/tables/gated.json"
BOOTSTRAP = "kas/auth/tables/bootstrap.json"
OPENAPI = "kas/endpoints/openapi/definitions.json.gz"
# (generator, its sources, its tables). A generator is called with the paths of the sources and then of the tables.
TABLES: tuple[tuple[Callable[..., None], tuple[Path, ...], tuple[str, ...]], ...] = (
    (gen_types.main, (FACTS,), (f"{TYPES}/types.json", f"{TYPES}/fields.jsonl", f"{TYPES}/resources.json")),
    (gen_printers.main, (FACTS, ANSWERS), (PRINTERS,)),
    (gen_gates.main, (FACTS,), (GATES,)),
    (gen_gated.main, (FACTS,), (GATED,)),
    (gen_bootstrap.main, (FACTS,), (BOOTSTRAP,)),
    (gen_openapi.main, (FACTS, TEXTS), (OPENAPI,)),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--into", type=Path, default=ROOT, metavar="DIRECTORY", help="write below this directory instead of the checkout")
    into = parser.parse_args().into
    for generate, sources, tables in TABLES:
        outputs = [into / table for table in tables]
        for path in outputs:
            path.parent.mkdir(parents=True, exist_ok=True)
        generate(*sources, *outputs)
        print(*tables, sep="\n")


if __name__ == "__main__":
    main()
