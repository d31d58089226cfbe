"""Write matrix.json anew from the published releases, and the README's table where it has one.

.venv/bin/python -m tests.matrix.regenerate
"""

import dataclasses
import json

from dspark_cli.patches.found_vllm import given_vllm
from dspark_cli.patches.judge import judge
from dspark_cli.patches.matrix import MATRIX_FILE, Matrix, cells, first_seen, read_matrix, release_table
from dspark_cli.patches.registry import PATCHES
from tests.matrix.differences import differences
from tests.matrix.published import RELEASES, published_sources
from tests.matrix.readme_table import put_table, readme_table


def main() -> None:
    before = read_matrix() if MATRIX_FILE.exists() else Matrix({}, {})
    matrix = _judged_releases()
    MATRIX_FILE.write_text(json.dumps(dataclasses.asdict(matrix), indent=1) + "\n")
    for release, row in matrix.releases.items():
        for difference in differences(before.releases.get(release, {}), row):
            print(f"{release} {difference}")
    in_readme = put_table(readme_table(release_table(matrix, PATCHES)))
    print(f"{MATRIX_FILE.name} written; README.md {'has the table' if in_readme else 'has no place for the table'}")


def _judged_releases() -> Matrix:
    found = {release: given_vllm(str(published_sources(release))) for release in RELEASES}
    rows = {release: cells(judge(one, PATCHES)) for release, one in found.items()}
    return Matrix(rows, first_seen([(release, one.tree) for release, one in found.items()], PATCHES))


if __name__ == "__main__":
    main()
