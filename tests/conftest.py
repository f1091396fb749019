"""What all tests share: Hypothesis judges results, never time, which is the machine's and not the code's."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
