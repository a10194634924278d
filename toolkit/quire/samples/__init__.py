"""Small files to try quire on."""
