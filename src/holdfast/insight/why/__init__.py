"""The answer to "why is this task not running?", in one plain sentence and what to do about it."""
