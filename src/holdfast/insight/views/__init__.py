"""The JSON views that the command line and the API share."""
