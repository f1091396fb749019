"""The profile of a longer search: pytest --hypothesis-profile=long tests/unit/fuzz"""

from hypothesis import settings

settings.register_profile("long", max_examples=2_000, deadline=None)
