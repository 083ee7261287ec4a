"""Small networks by topic; tests import them from `tests.toy_nets`."""
