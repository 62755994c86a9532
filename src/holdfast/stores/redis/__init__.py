"""Redis: one server, Sentinel or Cluster. Needs ``pip install 'holdfast-engine[redis]'``."""
