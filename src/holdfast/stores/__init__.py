"""Where tasks are kept. Each store passes `holdfast.testing.contract`."""
