"""How rows get into a table."""
