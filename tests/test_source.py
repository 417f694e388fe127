"""Rules of the source that are cheap to check: imports go one way, layers stay small, lint is clean, no machine path is mentioned.

``pytest tests/test_source.py -s`` prints the layers with their shares of the lines, and import cycles.
"""

from __future__ import annotations

import ast
import collections
import functools
import re
import statistics
import subprocess
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from kas.config.validation import BACKENDS
from tests import prerequisites

ROOT = Path(__file__).parents[1]
KAS = ROOT / "kas"

# Outermost first. A layer imports only from layers further down; layers of one rank do not import one another.
RANKS = [
    ("__main__",),
    ("cli", "testing", "library"), ("storage", "envtest"), ("preflight", "supervisor"), ("worker", "preparation"),
    ("server", "warmup", "replicator"),
    ("extensions",), ("controllers",), ("edge",), ("filters",), ("flowcontrol",),
    ("director", "aggregator"),
    ("endpoints",), ("admission",), ("kinds",), ("registry",), ("apiextensions",), ("audit", "encryption"), ("auth",),
    ("patch", "cel", "client"), ("informers",), ("types",), ("request",), ("store",), ("meta",), ("checks",), ("_fastpath", "_codecs"),
]  # fmt: skip
LEAVES = ("config", "observe")  # usable from any layer; they use nothing above meta
RANK = {name: i for i, line in enumerate(RANKS) for name in line} | dict.fromkeys(LEAVES, len(RANKS) - 3.5)
MOST = 0.15  # share of all lines in one layer; a group of kinds is a layer


def modules() -> dict[str, Path]:
    """Returns dotted name -> file, of Python and compiled modules."""
    out = {}
    for path in [*KAS.rglob("*.py"), *KAS.rglob("*.pyx")]:
        name = ".".join(("kas", *path.relative_to(KAS).with_suffix("").parts))
        out[name.removesuffix(".__init__")] = path
    return out


MODULES = modules()


class Source(NamedTuple):
    """What one pass over a Python file finds; (name, line) each."""

    imports: list[tuple[str, int]]  # of modules, in functions too
    run: list[tuple[str, int]]  # the same without those that only type checkers read
    undocumented: list[tuple[str, int]]
    long: list[tuple[str, int]]  # functions, with their lengths
    servers: list[tuple[str, int]]


@functools.cache
def source(path: Path) -> Source:
    """Reads a file once for all tests: parsing all files takes longer than checking them, and the trees take too much memory to keep."""
    if path.suffix != ".py":
        return Source([], [], [], [], [])
    tree = ast.parse(path.read_text())
    imports, long, servers = [], [], []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno - node.lineno >= 80:
            long.append((f"{node.name}: {node.end_lineno - node.lineno + 1} lines", node.lineno))
        elif isinstance(node, ast.arg) and node.arg == "server" and (node.annotation is None or ast.unparse(node.annotation) == "Any"):
            servers.append(("takes a server", node.lineno))
        elif isinstance(node, ast.Attribute) and node.attr in ("server", "_server"):
            servers.append(("keeps a server", node.lineno))
    undocumented = [(n.name, n.lineno) for n in public(tree) if not ast.get_docstring(n)]
    return Source(_imports(imports), _imports(_run(tree)), undocumented, long, servers)


def imported(path: Path, types: bool = True) -> list[tuple[str, int]]:
    """Returns the modules that a file imports, in functions too, with line numbers; without ``types``, not those that only type checkers
    read."""
    return source(path).imports if types else source(path).run


def _imports(nodes: Iterable[ast.AST]) -> list[tuple[str, int]]:
    out = []
    for node in nodes:
        if isinstance(node, ast.Import):
            out += [(a.name, node.lineno) for a in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            for a in node.names:
                full = f"{node.module}.{a.name}"
                out.append((full if full in MODULES else node.module, node.lineno))
    return out


def _run(tree: ast.AST) -> Iterator[ast.AST]:
    """Returns the statements that are executed: all except those that only type checkers read."""
    left = [tree]
    while left:
        for child in ast.iter_child_nodes(left.pop()):
            if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
                if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                    continue
                yield child
                left.append(child)


def layer(name: str) -> str:
    """``kas.kinds.core.pod.strategy`` -> ``kinds.core``; ``kas.store.hub`` -> ``store``."""
    parts = name.split(".")[1:]
    return ".".join(parts[:2]) if parts[:1] == ["kinds"] and len(parts) > 1 else parts[0] if parts else ""


def test_imports_point_down():
    wrong = []
    for own, path in MODULES.items():
        rank = RANK.get(own.split(".")[1] if "." in own else "")
        if rank is None:
            assert own == "kas", f"{own} stands in no rank"
            continue
        for name, line in imported(path):
            parts = name.split(".")
            if parts[0] != "kas" or len(parts) < 2 or parts[1] == own.split(".")[1] or parts[1] in LEAVES:
                continue
            if RANK.get(parts[1], -1) <= rank and parts[1] in RANK:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_the_architecture_names_every_package():
    table = (ROOT / "docs" / "architecture.md").read_text().partition("| layer | what |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`(?:kas/)?(\w+)(?:/|\.py)", table))
    units = {"_fastpath", "_codecs"}  # at the bottom, and described below the table
    assert {name for line in RANKS for name in line} - units - named == set(), "layers that docs/architecture.md does not name"
    assert set(LEAVES) <= named


def test_kinds_import_only_core():
    wrong = []
    for own, path in MODULES.items():
        if not own.startswith("kas.kinds."):
            continue
        for name, line in imported(path):
            if name.startswith("kas.kinds.") and layer(name) not in (layer(own), "kinds.core"):
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_no_import_cycles():
    graph = {own: {n for n, _ in imported(path, types=False) if n in MODULES and n != own} for own, path in MODULES.items()}
    circles = _circles(graph)
    print(f"\ncircles: {len(circles)}")
    assert not circles, circles


def _circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Returns the strongly connected components with more than one module (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    out: list[list[str]] = []

    def visit(v: str) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            component = stack[stack.index(v) :]
            del stack[stack.index(v) :]
            if len(component) > 1:
                out.append(sorted(component))

    for v in graph:
        if v not in index:
            visit(v)
    return out


def test_no_layer_is_too_large():
    lines: collections.Counter[str] = collections.Counter()
    for path in [*KAS.rglob("*.py"), *KAS.rglob("*.py[xi]"), *KAS.rglob("*.px[di]")]:
        name = ".".join(("kas", *path.relative_to(KAS).with_suffix("").parts))
        lines[{"fastpath": "_fastpath"}.get(layer(name), layer(name))] += len(path.read_text().splitlines())
    total = sum(lines.values())
    print(f"\n{total} lines")
    for name, n in lines.most_common():
        print(f"  {name or 'kas':28}{n:7}{100 * n / total:6.1f} %")
    assert not {name: n for name, n in lines.items() if n > MOST * total}


def test_compiled_units_are_imported_only_by_their_package():
    wrong = []
    for own, path in MODULES.items():
        for name, line in imported(path):
            package, _, unit = name.rpartition(".")
            if unit.startswith("_") and package.count(".") and not own.startswith(package) and name in MODULES:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_plugins_and_filters_do_not_import_one_another():
    wrong = []
    for folder, may in ((KAS / "admission" / "plugins", set()), (KAS / "filters", {"handler", "deadlines"})):
        prefix = "kas." + ".".join(folder.relative_to(KAS).parts) + "."
        names = {p.stem for p in folder.glob("*.py")}
        for path in folder.glob("*.py"):
            if path == KAS / "filters" / "chain.py":
                continue  # it is the list of them
            for name, line in imported(path):
                other = name.removeprefix(prefix).split(".")[0] if name.startswith(prefix) else ""
                if other in names and other != path.stem and other not in may and not other.startswith("_"):
                    wrong.append(f"{path.relative_to(ROOT)}:{line} imports {name}")
    assert not wrong, "\n".join(wrong)


def test_no_component_is_given_the_whole_server():
    """Components take what they need (``kas.informers``, initializers): only the code that starts it knows the server."""
    wrong = []
    for own, path in MODULES.items():
        if path.suffix != ".py" or own.split(".")[1:2] in (["server"], ["worker"], ["supervisor"], ["cli"], ["testing"]):
            continue
        wrong += [f"{path.relative_to(ROOT)}:{line} imports {name}" for name, line in imported(path) if name.startswith("kas.server")]
        wrong += [f"{path.relative_to(ROOT)}:{line} {what}" for what, line in source(path).servers]
    print(f"\n`Any` for a server: {len(wrong)}")
    assert not wrong, "\n".join(wrong)


def test_types_come_from_the_servers_scheme():
    """The table of compiled-in types is behind ``Scheme``; other users have a reason in docs/architecture.md."""
    asked = {own for own, path in MODULES.items() if path.suffix == ".py" and re.search(r"\bBUILTIN\b", path.read_text())}
    assert asked == {"kas.types.scheme", "kas.types.checktables", "kas.controllers.policystatus"}


def test_each_plugin_filter_authenticator_and_authorizer_has_its_test_module():
    wanted = [ROOT / "tests" / "admission" / "plugins" / f"test_{p.stem}.py" for p in (KAS / "admission" / "plugins").glob("[a-z]*.py")]
    authorizers = [p for p in (KAS / "auth" / "authz").glob("[a-z]*.py") if "class " in p.read_text()]
    wanted += [ROOT / "tests" / "auth" / f"test_{p.stem}.py" for p in authorizers]
    authenticators = [p for p in (KAS / "auth" / "authn").glob("[a-z]*.py") if "def authenticate" in p.read_text()]
    wanted += [ROOT / "tests" / "auth" / f"test_{p.stem}.py" for p in authenticators]
    filters = [p for p in (KAS / "filters").glob("[a-z]*.py") if p.stem != "chain"]  # the list of them: test_waiting.py runs it
    wanted += [ROOT / "tests" / "filters" / f"test_{p.stem}.py" for p in filters]
    assert len(authorizers) >= 5 and len(authenticators) >= 8 and len(filters) >= 25
    assert not [path for path in wanted if not path.exists()]


def test_each_filter_is_in_the_chain():
    """A filter that is imported there is used there; ruff checks that."""
    files = (KAS / "filters").glob("[a-z]*.py")
    filters = {f"kas.filters.{p.stem}" for p in files if re.search(r"^def .* -> Filter:", p.read_text(), re.M)}
    assert len(filters) >= 25 and not filters - {name for name, _ in imported(KAS / "filters" / "chain.py")}


def test_each_authenticator_is_in_a_union():
    """The server passes everything that the union needs: an argument that is not passed would be a flag without effect."""
    having = {f"kas.auth.authn.{p.stem}" for p in (KAS / "auth" / "authn").glob("[a-z]*.py") if "def authenticate" in p.read_text()}
    unions = KAS / "auth" / "credentials.py", KAS / "auth" / "external.py", KAS / "server.py"
    assert len(having) >= 8 and not having - {name for path in unions for name, _ in imported(path)}
    (init,) = (
        function for node in ast.parse(unions[0].read_text()).body if isinstance(node, ast.ClassDef) and node.name == "Credentials"
        for function in node.body if isinstance(function, ast.FunctionDef) and function.name == "__init__"
    )  # fmt: skip
    asked = [argument.arg for argument in init.args.args[1:]]
    (call,) = (
        node for node in ast.walk(ast.parse(unions[2].read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Credentials"
    )  # fmt: skip
    assert {*asked[: len(call.args)], *(keyword.arg for keyword in call.keywords)} == {*asked}


def test_each_backend_has_a_flag_value_is_opened_and_runs_the_contract():
    """A package beside ``kas.store.lmdb``: its value of --storage-backend is its name, with an optional number."""
    packages = {p.parent.name for p in (KAS / "store").glob("*/__init__.py")}
    values = [re.sub(r"\d+$", "", value) for value in BACKENDS]
    assert len(packages) >= 2 and sorted(values) == sorted(packages)
    openers = KAS / "worker.py", KAS / "replicator.py", KAS / "store" / "__init__.py"
    for files in (openers, (ROOT / "tests" / "contract").glob("*.py")):
        used = {name.split(".")[2] for path in files for name, _ in imported(path, types=False) if name.startswith("kas.store.")}
        assert not packages - used, files


def test_each_compiled_unit_has_a_pxd_and_a_pyi():
    units = list(KAS.rglob("*.pyx"))
    assert len(units) >= 8 and not [p for p in units if not (p.with_suffix(".pxd").exists() and p.with_suffix(".pyi").exists())]


def public(node: ast.AST):
    """Yields public classes, functions and methods; not what is nested in a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name.startswith("_"):
                continue
            yield child
        if isinstance(child, ast.ClassDef | ast.If | ast.Try):
            yield from public(child)


def test_everything_public_has_a_docstring():
    wrong = []
    for path in MODULES.values():
        if not path.stem.endswith("_pb2"):
            wrong += [f"{path.relative_to(ROOT)}:{line} {name}" for name, line in source(path).undocumented]
    assert not wrong, "\n".join(wrong)


def test_files_are_short():
    sizes = [len(path.read_text().splitlines()) for path in MODULES.values() if path.suffix == ".py"]
    assert statistics.median(sizes) <= 120


def test_the_length_of_functions_and_files_is_bounded():
    """80 lines for a function, 700 for a file (except tables of flags, kinds and types)."""
    wrong = []
    for path in MODULES.values():
        if path.suffix == ".py":
            if path.read_text().count("\n") > 700:
                wrong.append(f"{path.relative_to(ROOT)} is long")
            wrong += [f"{path.relative_to(ROOT)}:{line} {what}" for what, line in source(path).long]
    assert not wrong, "\n".join(wrong)


def test_the_store_parses_no_object():
    for path in (KAS / "store").rglob("*.py"):
        assert not any(name.split(".")[0] in ("orjson", "json", "msgspec") for name, _ in imported(path)), path


def test_no_pattern_repeats_a_group_possessively():
    """Before Python 3.11.5, ``re`` matches wrongly with such a pattern (gh-106052), and with atomic groups; possessive repeats of one
    character class are correct."""
    possessive = re.compile(r"(?<!\()\)(?:[*+?]|\{[0-9,]+\})\+|\(\?>")
    assert possessive.search(r"[a-z]++(?:-++[a-z]++)*+") and not possessive.search(r"[a-z][-a-z]*+(?<!-)[!$&'()*+]")
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted(KAS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
        if possessive.search(node.value if isinstance(node.value, str) else node.value.decode("latin-1"))
    ]
    assert found == []


def test_ruff_is_clean():
    prerequisites.module("ruff")
    done = subprocess.run([sys.executable, "-m", "ruff", "check", "."], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]


def test_every_compiled_part_is_packaged():
    manifest = (ROOT / "MANIFEST.in").read_text()
    assert all(f"*.{ending}" in manifest for ending in ("pxi", "pyx", "pxd", "pyi"))
    data = (ROOT / "pyproject.toml").read_text()
    assert all(f'"**/*.{ending}"' in data for ending in ("pxi", "pyx", "pxd", "pyi"))


def test_programs_find_the_checkout():
    """Programs beside the package run as ``python bench/x.py`` from anywhere: those that import tests or other benches extend the path."""
    for path in (p for folder in ("bench", "loadtests") for p in (ROOT / folder).glob("*.py")):
        text = path.read_text()
        if "__main__" in text and re.search(r"^from (bench|loadtests|tests)\b", text, re.MULTILINE):
            assert re.search(r"^sys\.path", text, re.MULTILINE), path


def test_modules_named_in_docstrings_and_comments_exist():
    """By name, or by the end of their path; upstream's files end with .go or .proto."""
    folders, endings = ("kas", "tests", "tools", "bench", "loadtests"), ("py", "px[di]", "pyx", "json")
    files = [p for folder in folders for ending in endings for p in (ROOT / folder).rglob(f"*.{ending}")]
    there = {"/".join(p.parts[-n:]) for p in files for n in range(1, len(p.parts))}
    name = re.compile(r"(?<![\w./-])((?:[A-Za-z_]\w*/)*[A-Za-z_]\w*\.(?:py|pyx|pxd|pxi|json))(?!\.\w|[\w/])")
    wrong = []
    for path in KAS.rglob("*.py"):
        with tokenize.open(path) as file:
            tokens = list(tokenize.generate_tokens(file.readline))
        said = (t for t in tokens if t.type == tokenize.COMMENT or (t.type == tokenize.STRING and t.string.startswith('"""')))
        wrong += [f"{path.relative_to(ROOT)}:{t.start[0]}: {named}" for t in said for named in name.findall(t.string) if named not in there]
    assert not wrong, "\n".join(wrong)


def test_no_path_leads_outside_of_the_checkout():
    """A clone builds, runs and tests in any directory."""
    kinds = {".py", ".pyx", ".pxi", ".pxd", ".md", ".txt", ".yaml", ".toml", ".in", ""}
    folders = ("kas", "tests", "tools", "bench", "loadtests", "docs", ".ci")
    paths = [p for p in ROOT.glob("*") if p.suffix in kinds] + [p for f in folders for p in (ROOT / f).rglob("*") if p.suffix in kinds]
    wrong = []
    for path in paths:
        own = path.relative_to(ROOT)
        if not path.is_file() or own == Path("tests/test_source.py") or own.parts[0] == ".git":
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            above = any(int(n) >= len(own.parts) for n in re.findall(r"parents\[(\d+)\]", line))
            if above:
                wrong.append(f"{own}:{number}: {line.strip()[:100]}")
    assert not wrong, "\n".join(wrong)


def test_file_names_are_plain():
    """A file named by a wrong value of a flag was committed more than once. An archive of the source has no repository to check."""
    if not (ROOT / ".git").exists():
        return
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    parts = {part for name in listed.split("\0") if name for part in name.split("/")}
    assert parts and [part for part in parts if not re.fullmatch(r"[A-Za-z0-9._][A-Za-z0-9._+@-]*", part)] == []
