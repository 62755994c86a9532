"""What asks the questions: environments, servers, runs, figures, ratios, report, plots, guard."""
