"""Google Cloud Storage, by its JSON interface."""
