"""The drivers of plans: the service gives each plan to one instance at a time (`service.py`), which
drives it step by step (`driver.py`) and sends commands to its tasks (`task_gateway.py`)."""
