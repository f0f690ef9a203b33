"""The copy's conftest: few examples, always the same, and no time spent on making a failing one small."""

from hypothesis import Phase, settings

settings.register_profile(
    "mutants",
    max_examples=25,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile("mutants")
