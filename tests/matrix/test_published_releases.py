"""Every published release stands as matrix.json says: `make test-matrix`. The first run downloads 3 GB of wheels."""

import pytest

from dspark_cli.patches.found_vllm import given_vllm
from dspark_cli.patches.judge import judge
from dspark_cli.patches.matrix import cells, read_matrix
from dspark_cli.patches.registry import PATCHES
from tests.matrix.differences import differences
from tests.matrix.published import RELEASES, published_sources

MATRIX = read_matrix()


def test_the_table_has_these_releases() -> None:
    assert tuple(MATRIX.releases) == RELEASES


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("release", RELEASES)
def test_a_published_release_stands_as_the_table_says(release: str) -> None:
    found = given_vllm(str(published_sources(release)))

    verdict = judge(found, PATCHES)

    assert found.version == release
    assert differences(MATRIX.releases.get(release, {}), cells(verdict)) == []
