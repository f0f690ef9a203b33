"""The local stack: launchers of the emulators, and the demo."""
