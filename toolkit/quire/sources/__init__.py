"""Where the input comes from, and what is done to a file's content on its way to a data file."""
