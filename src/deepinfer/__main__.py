"""`python -m deepinfer`: the command line without an installed script."""

from .cli.main import main

if __name__ == "__main__":
    main(prog_name="deepinfer")
