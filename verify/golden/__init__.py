"""Golden stores: written by an earlier version, and carried to their end by today's code.

`tasks` declares the work, `write` is run on the earlier version and leaves the files that
`tests/stores/test_golden.py` opens. A later version adds files of its own; none is written again.
"""
