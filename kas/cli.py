"""The command line: ``kas serve``, ``kas version``. Imports little, because the supervisor stays in this process."""

from __future__ import annotations

import sys

import click

from kas import KUBERNETES_VERSION, __version__
from kas.options import SPECS, OptionError, Options, complete, parse_duration


class Duration(click.ParamType):
    name = "duration"

    def convert(self, value, param, ctx):
        if isinstance(value, (int, float)):
            return float(value)
        try:
            return parse_duration(value)
        except OptionError as e:
            self.fail(str(e), param, ctx)


def _split(ctx, param, value) -> list[str]:
    return [part.strip() for v in value for part in v.split(",") if part.strip()]


def _click_option(spec):
    meta, name = spec.metadata, spec.name.replace("_", "-")
    default = spec.default_factory() if meta["many"] else spec.default
    common = {"help": meta["help"]}
    if meta["many"]:
        shown = ",".join(default)
        return click.option(
            f"--{name}",
            spec.name,
            multiple=True,
            default=tuple(default),
            callback=_split,
            show_default=shown or "none",
            metavar="LIST",
            **common,
        )
    if meta["kind"] == "bool":
        return click.option(
            f"--{name}", spec.name, type=bool, is_flag=False, flag_value=True, default=default, show_default=True, metavar="BOOL", **common
        )
    kind = {"int": int, "float": float, "duration": Duration(), "path": str, "str": str}[meta["kind"]]
    shown = f"{default:g}s" if meta["kind"] == "duration" else True
    decl = [meta["short"], spec.name] if "short" in meta else [f"--{name}", spec.name]
    return click.option(*decl, type=kind, default=default, show_default=shown, metavar=meta.get("metavar"), **common)


class Commands(click.Group):
    """A wrong flag is told in one line, without the usage before it."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except click.UsageError as e:
            e.ctx = None
            raise


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def main() -> None:
    """kas: a Kubernetes API server."""


@main.command()
def version() -> None:
    """Print the versions of kas and of the Kubernetes API it serves."""
    click.echo(f"kas {__version__}, Kubernetes v{KUBERNETES_VERSION}, Python {sys.version.split()[0]}")


@main.command()
def serve(**given) -> None:
    """Serve the Kubernetes API."""
    options = Options()
    for name, value in given.items():
        options.set(name, value)
    try:
        completed = complete(options)
    except OptionError as e:
        click.echo(f"kas: {e}", err=True)
        sys.exit(2)
    from kas.supervisor import run

    sys.exit(run(completed))


for _spec in SPECS.values():
    serve = _click_option(_spec)(serve)

if __name__ == "__main__":
    main()
