"""Draft acceptance from a vLLM log: the lines that vLLM writes every ten seconds, in the words of 0.5 to 0.33."""

from dspark_cli.sources.acceptance_log.reader import read_acceptance_log

__all__ = ["read_acceptance_log"]
