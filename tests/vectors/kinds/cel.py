"""CEL expressions: types, values and costs."""

from typing import Any

from kas import cel
from kas.cel.library.standard import double_text
from kas.cel.types import DYN, INT, STRING
from kas.cel.values import Duration, Optional, Timestamp, TypeValue, key_value, type_of_value
from kas.meta.duration import format_ns

ENV = cel.BASE.extended({"n": INT, "s": STRING, "object": DYN, "oldObject": DYN})


def shown(v: Any) -> dict[str, Any]:
    kind = type_of_value(v)
    if v is None:
        return {"type": "null_type", "value": None}
    if isinstance(v, bool):
        return {"type": "bool", "value": v}
    if isinstance(v, int):
        return {"type": kind.name, "value": str(int(v))}
    if isinstance(v, float):
        return {"type": "double", "value": double_text(v)}
    if isinstance(v, str):
        return {"type": "string", "value": v}
    if isinstance(v, bytes):
        return {"type": "bytes", "value": v.hex()}
    if isinstance(v, list):
        return {"type": "list", "value": [shown(x) for x in v]}
    if isinstance(v, dict):
        return {"type": "map", "value": [[shown(key_value(k)), shown(x)] for k, x in v.items()]}
    if isinstance(v, Timestamp):
        return {"type": "timestamp", "value": v.text()}
    if isinstance(v, Duration):
        return {"type": "duration", "value": format_ns(v.ns)}
    if isinstance(v, TypeValue):
        return {"type": "type", "value": str(v.type)}
    if isinstance(v, Optional):
        return {"type": "optional_type", "value": shown(v.value) if v.present else None}
    return {"type": kind.name, "value": str(v)}


def check(vector, group):
    if vector["id"].startswith("cel/variables/"):
        return
    variables = next(v["in"] for v in group if v["id"].startswith("cel/variables/"))
    want, got = vector["out"], {}
    try:
        program = cel.compile(vector["in"]["expression"], ENV)
    except cel.CompileError as e:
        got = {"compileError": str(e)}
    except cel.ProgramError as e:
        got = {"programError": str(e)}
    else:
        value, cost = program.run(variables)
        got = {"cost": cost, "outputType": str(program.type)}
        if isinstance(value, cel.EvaluationError):
            got["evalError"] = str(value)
        else:
            got["result"] = shown(value)
    assert got == want
