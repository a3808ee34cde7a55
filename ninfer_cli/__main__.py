"""`python -m ninfer_cli`."""

from ninfer_cli.app import main

main()
