"""Draft acceptance from the result file of a benchmark."""

from dspark_cli.facts.recording import Recording
from dspark_cli.sources.bench_results.aiperf import read_aiperf
from dspark_cli.sources.bench_results.aiperf_server_metrics import read_aiperf_server_metrics
from dspark_cli.sources.bench_results.documents import read_documents
from dspark_cli.sources.bench_results.guidellm import read_guidellm
from dspark_cli.sources.bench_results.vllm_serve import read_vllm_serve

READERS = (read_vllm_serve, read_aiperf_server_metrics, read_aiperf, read_guidellm)


def read_bench_result(content: bytes, name: str) -> Recording | None:
    """What the server drafted during a benchmark of `vllm bench serve`, aiperf or guidellm; None where it is no result
    of theirs. `name` is the file's, for display.

    Raises:
        CannotSay: a result of theirs, without speculative figures.
        NotFit: a result of theirs that is cut short, or whose figures contradict each other.
    """
    documents = read_documents(content)
    return next((found for read in READERS if (found := read(documents, content, name)) is not None), None)
