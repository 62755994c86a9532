"""People and pages are shown this: why, health, timeline, diagrams and JSON views."""
