"""Custom resources: their table (``table.py``), the handler of their paths (``handler.py``), and the encoding of their records."""
