"""Tests against real services, which fixtures start on free loopback ports and end."""
