"""Wiring and words for people: the command line, the workflows behind it, and the dashboard."""
