"""`python -m quire.cli`: for where the script `quire` is not on the path."""

from quire.cli import main

if __name__ == "__main__":
    main()
