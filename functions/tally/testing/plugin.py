"""The pytest plugin of Tally's users: `pip install` makes its fixtures available."""
