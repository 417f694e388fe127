"""Names that expressions cannot use for anything else (cel-spec: reserved words)."""

LITERALS = frozenset(("true", "false", "null", "in"))
RESERVED = frozenset((
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "namespace", "return", "var",
    "void", "while",
))  # fmt: skip
