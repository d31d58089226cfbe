"""Options of vLLM are taken behind a lone `--`; who types one before it is told so."""

from typing import Any

from typer.core import TyperCommand


class TakesVllmArguments(TyperCommand):
    """A command whose last argument is what goes to vLLM."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            # By its attributes: which module the class is of depends on typer's release.
            if hasattr(error, "option_name") and hasattr(error, "possibilities") and hasattr(error, "message"):
                error.message += ". Options of vllm serve go behind a lone --"
            raise
