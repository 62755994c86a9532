"""The OpenAPI document: schemas, names and examples."""
