"""Reserved words, which expressions cannot use as names (cel-spec)."""

LITERALS = frozenset(("true", "false", "null", "in"))
RESERVED = frozenset((
    "as", "break", "const", "continue", "else", "for", "function", "if", "import", "let", "loop", "package", "namespace", "return", "var",
    "void", "while",
))  # fmt: skip
