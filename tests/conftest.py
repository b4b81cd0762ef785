"""Settings for all tests: the same examples every time, and no limit on how long one may take."""

from hypothesis import settings

settings.register_profile("guerdon", derandomize=True, deadline=None)
settings.load_profile("guerdon")
