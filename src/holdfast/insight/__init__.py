"""What people and pages are shown: why, health, timeline, diagrams, JSON views."""
