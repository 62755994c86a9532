"""`holdfast demo`: two workers, forty tenants, one kill -9."""
