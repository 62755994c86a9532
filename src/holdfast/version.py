"""The version of Holdfast and the name of its distribution, which is not the name of the import."""

__version__ = "0.1.0"  # pyproject.toml reads it from here

DISTRIBUTION = "holdfast-engine"  # the name `holdfast` on the package index is another project's
