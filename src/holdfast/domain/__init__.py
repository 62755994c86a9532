"""The rules, as values: no await, no clock, no chance, no I/O."""
