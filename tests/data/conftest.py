"""What lies here is read by tests, not collected: also the scripts that made it."""

collect_ignore_glob = ["*/*.py"]
