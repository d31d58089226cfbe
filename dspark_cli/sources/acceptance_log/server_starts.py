"""What the starts of the servers in a log say: the model, the tokens that it drafts a step, whether it speculates."""

import re
from dataclasses import dataclass

from dspark_cli.sources.acceptance_log.bounds import printable_name, remember

_ARGUMENTS = "non-default args: "
_ENGINE_STARTS = re.compile(r"Initializing an? (?:V\d )?LLM engine \(")
_MODEL_SAYS = (
    re.compile(r"'served_model_name': \['([^']*)'"),
    re.compile(r"served_model_name=([^,]*),"),
    re.compile(r"'model(?:_tag)?': '([^']*)'"),
    re.compile(r"with config: model='([^']*)'"),
)
_POSITIONS_SAY = re.compile(r"(?:'num_speculative_tokens': |num_spec_tokens=)(\d{1,3})\b")
_SPECULATES = re.compile(r"'speculative_config': \{|speculative_config=SpeculativeConfig")
_DOES_NOT_SPECULATE = re.compile(r"speculative_config=None")


@dataclass(frozen=True)
class Server:
    """What a start of the server says of itself; `positions` are the tokens that it drafts a step."""

    model: str = ""
    positions: int | None = None


class ServerStarts:
    def __init__(self) -> None:
        self.speculates: bool | None = None
        """Whether any server in the log does; None where none says."""
        self._server_of: dict[str, Server] = {}
        self._last = Server()

    def read(self, process: str, message: str) -> None:
        said = Server(_model_in(message), _positions_in(message))
        remember(self._server_of, process, said)
        # An engine tells its whole configuration, so what it leaves out is not the last server's.
        positions = said.positions if _ENGINE_STARTS.match(message) else said.positions or self._last.positions
        self._last = Server(said.model or self._last.model, positions)
        if _SPECULATES.search(message):
            self.speculates = True
        elif _DOES_NOT_SPECULATE.search(message):
            self.speculates = self.speculates or False

    def server_of(self, process: str) -> Server:
        """A server's start is told by the API server and by its engine; the lines on drafts come from the first."""
        own = self._server_of.get(process, Server())
        return Server(own.model or self._last.model, own.positions or self._last.positions)


def is_start(message: str) -> bool:
    return message.startswith(_ARGUMENTS) or _ENGINE_STARTS.match(message) is not None


def _model_in(message: str) -> str:
    """The name under which the model is served, else its path; anyone's text, so short and printable."""
    found = next((found for says in _MODEL_SAYS if (found := says.search(message))), None)
    return printable_name(found[1]) if found else ""


def _positions_in(message: str) -> int | None:
    found = _POSITIONS_SAY.search(message)
    return int(found[1]) if found else None
