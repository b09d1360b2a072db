"""Protocols in Python: what they declare, and what their methods are given."""
