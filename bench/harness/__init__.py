"""The harness of the benchmark: environments, servers, runs, figures, ratios, report, guard."""
