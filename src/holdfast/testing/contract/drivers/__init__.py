"""The hands of workers, operators, plan drivers and schedulers on a store, one step at a time."""
