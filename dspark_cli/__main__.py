"""`python -m dspark_cli` is `dspark-tool`."""

from dspark_cli.main import main

main()
