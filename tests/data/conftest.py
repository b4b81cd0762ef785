"""What lies here is read by tests, not collected: scripts that made it run with the version that they name only."""

collect_ignore_glob = ["*/*.py"]
