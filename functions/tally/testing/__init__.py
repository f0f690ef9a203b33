"""Fakes of the ports that can fail as badly as the services may, and virtual time: for Tally's tests and its users'."""
