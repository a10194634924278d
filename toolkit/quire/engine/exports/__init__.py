"""The metadata of other formats over a destination's own data files: each of their readers sees whole commits, and no file is copied."""
