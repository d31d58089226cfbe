"""Findings over draft acceptance, one a module; each has `check`, and `check.check_acceptance` runs them all."""
