"""The harness of the benchmark: environments, servers, stores, runs and the guard."""
