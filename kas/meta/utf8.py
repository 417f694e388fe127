"""Text from bytes that need not be UTF-8."""

from __future__ import annotations

from kas._codecs import utf8_text as text

__all__ = ["text"]
