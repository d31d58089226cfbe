"""What other users of a host see of this process."""

import sys

from dspark_cli.serving.secrets import without_secrets


def hide_own_arguments() -> None:
    """Where the arguments of this process hold a secret, show them masked to ps from now on.

    Until then they were readable, so a key is better given by VLLM_API_KEY or in a --config FILE.
    """
    shown = without_secrets(sys.argv)
    if shown == sys.argv:
        return
    try:
        from setproctitle import setproctitle  # vLLM depends on it
    except ImportError:
        return
    setproctitle(" ".join(shown))
