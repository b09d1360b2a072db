"""Parts in Python: classes that become parts, and the calls of the program."""
