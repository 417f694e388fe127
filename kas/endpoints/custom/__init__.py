"""Custom resources: which there are (``table.py``), who answers their paths (``handler.py``), and how their records become answers."""
