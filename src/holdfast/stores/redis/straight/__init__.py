"""The straight path: what goes well, in scripts that do only that.

Its law:

- A straight script looks at everything first. It writes only what is as usual in every respect, and
  answers by number what is not; an insert takes the whole batch or nothing of it. The general
  scripts of `tasks/` do the rest: they alone know the unusual.
- Whoever reads the store afterwards finds what the general scripts would have written: the same
  keys, fields and values.
- Whether a task is usual is decided here and in the scripts, by what is looked at in the same step,
  never by what the caller believes.

`?straight=off` in the address of a store switches it off. `tests/stores/redis/straight/` runs the
same moves on both ways and compares answers and keys.
"""
