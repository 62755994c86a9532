"""Schemas, names and examples of the OpenAPI document, which `server/api.py` puts together."""
