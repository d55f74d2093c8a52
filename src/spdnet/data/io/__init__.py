"""Readers of files and folders."""
