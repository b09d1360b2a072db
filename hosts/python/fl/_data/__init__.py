"""Rows in memory, and arrays in files."""
