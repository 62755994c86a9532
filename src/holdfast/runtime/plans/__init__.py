"""Plans, driven: one instance at a time looks after each (`service.py`), step by step
(`driver.py`), and reaches its tasks by their own commands (`task_gateway.py`)."""
