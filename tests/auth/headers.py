"""What authenticators read."""


def headers(**given):
    """A request's ``get`` over these headers."""
    return {k.replace("_", "-"): v for k, v in given.items()}.get
