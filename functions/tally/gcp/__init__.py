"""The ports on Google Cloud and on its emulators: the only place that imports google.* and grpc."""
