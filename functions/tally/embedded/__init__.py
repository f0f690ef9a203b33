"""The ports on one SQLite file: no cloud, no Java."""
