"""Writes docs/flags.md from the table of flags and the table of feature gates: ``make docs``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from kas.config import features  # noqa: E402
from kas.config.flags import SECTIONS, Flag  # noqa: E402

OUT = ROOT / "docs" / "flags.md"


def text() -> str:
    """Yields the lines of the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    flags = [flag for rows in SECTIONS.values() for flag in rows]
    kinds = [flag.effect.kind for flag in flags if not flag.own]
    yield "# Flags"
    yield ""
    yield "<!-- Made by tools/gen_flags.py from kas/config/flags: `make docs`. -->"
    yield ""
    yield f"`kas serve` knows the {len(kinds)} flags of kube-apiserver 1.36.2 and {len(flags) - len(kinds)} of its own."
    yield f"{kinds.count('works')} of kube-apiserver's flags work as they do there. {kinds.count('no effect')} are accepted and"
    yield "have no observable effect; a value that asks for something else causes a warning at the start."
    yield f"{kinds.count('one value')} accept only the value that kas implements; any other value is refused."
    yield ""
    yield "The syntax is kube-apiserver's: `--flag=value` or `--flag value`, switches only as `--flag` or `--flag=false`, lists comma"
    yield "separated or repeated, durations like `1h30m` or `500ms`, sizes as Kubernetes quantities. All errors of a command line are"
    yield "reported at once, one per line, with exit code 1."
    for section, rows in SECTIONS.items():
        yield ""
        yield "## Flags of kas' own" if section == "kas" else f"## {section.capitalize()}"
        yield ""
        yield "| flag | default | what it is for | here |"
        yield "| --- | --- | --- | --- |"
        yield from map(_row, rows)
    yield from _gates()


def _gates() -> Iterator[str]:
    known, effective = features.known(), features.effective()
    kinds: dict[str, set[str]] = {}
    for where, rows in features.gated_fields().items():
        for path, names in rows:
            for name in names:
                whose = "pods" if "template" in path or where in ("/v1/Pod", "/v1/PodTemplate") else where.rpartition("/")[2]
                kinds.setdefault(name, set()).add(f"`{[step for step in path if step[0] != '!'][-1]}` of {whose}")
    yield ""
    yield "## Feature gates"
    yield ""
    yield f"All {len(known)} gates of kube-apiserver 1.36.2 are known, with their stages, defaults and locks; `AllAlpha` and `AllBeta`"
    yield "set those that are not named. The gates below have an effect here. A gate that is off drops its fields from written"
    yield "objects, unless the stored object uses them. A gate without effect here that is set to another value than its default causes a"
    yield "warning at the start. A gate that is on while a gate that it needs is off is refused:"
    yield ""
    yield "; ".join(f"{name} needs {' and '.join(needs)}" for name, needs in features.NEEDS.items()) + "."
    yield ""
    yield "| gate | default | stage | governs |"
    yield "| --- | --- | --- | --- |"
    for name in sorted(effective):
        gate = known[name]
        what = [features.GOVERNED[name]] if name in features.GOVERNED else []
        fields = sorted(kinds.get(name, ()))
        if fields:
            what.append("fields: " + ", ".join(fields))
        if name in features.NOT_GOVERNED:
            what.append(features.NOT_GOVERNED[name])
        yield f"| {name} | {'on' if gate.default else 'off'} | {gate.stage} | {'; '.join(what)} |"
    for name in sorted(features.NOT_GOVERNED.keys() - effective):
        yield ""
        yield f"`{name}` governs {features.NOT_GOVERNED[name]}."


def _row(flag: Flag) -> str:
    default = flag.shown or (f"`{flag.shown_default}`" if flag.shown_default else "")
    if flag.upstream is not None:
        default += f" (kube-apiserver: {f'`{flag.upstream}`' if flag.upstream else 'none'})"
    effect = flag.effect
    here = "works" if effect.kind == "works" else f"{effect.kind}: {effect.why}"
    names = f"`-{flag.short}`, `--{flag.name}`" if flag.short else f"`--{flag.name}`"
    return f"| {names} | {default} | {flag.text} | {here} |".replace("true|false", "true\\|false")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, and fail where the page is another")
    if not parser.parse_args().check:
        OUT.write_text(text())
    elif OUT.read_text() != text():
        sys.exit(f"{OUT} is not what {Path(__file__).name} makes: run make docs")


if __name__ == "__main__":
    main()
