"""Settings of the whole test run: property tests draw the same examples every time, without a time limit each."""

from hypothesis import settings

settings.register_profile("project", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("project")
