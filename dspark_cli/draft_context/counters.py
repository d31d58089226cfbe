"""The worker method that answers for the draft context."""

from dspark_cli.draft_context.installed import describe

__all__ = ["describe"]
