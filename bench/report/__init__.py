"""Figures of the benchmark and what is made of them: ratios, summary, tables, plots and pages."""
