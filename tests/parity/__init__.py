"""A package, so that two folders may each have a test_bert.py."""
