"""`holdfast demo` runs two workers for forty tenants, and kills one with kill -9."""
