"""One script for each question: `python -m bench.questions.drain`."""
