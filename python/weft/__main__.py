"""python -m weft: the program `weft`."""

from weft._program import main

main()
